package dev.satchel;

import java.util.ArrayList;
import java.util.List;

/** How to answer; what is not set is as the model's maker chose. */
public final class Options {
    private static final int TEMPERATURE = 1;
    private static final int TOP_K = 2;
    private static final int TOP_P = 4;
    private static final int MIN_P = 8;
    private static final int REPETITION_PENALTY = 16;
    private static final int SEED = 32;

    private final double[] numbers = new double[6];
    private final List<byte[]> stop = new ArrayList<>();
    private int given;
    private int maxNewTokens;
    private int topK;
    private long seed;
    private boolean slide;

    /** 0: where the answer or the context ends. */
    public Options maxNewTokens(int tokens) {
        maxNewTokens = tokens;
        return this;
    }

    /** 0 always takes the likeliest token. */
    public Options temperature(double value) {
        return number(0, value, TEMPERATURE);
    }

    public Options topK(int value) {
        topK = value;
        given |= TOP_K;
        return this;
    }

    public Options topP(double value) {
        return number(1, value, TOP_P);
    }

    public Options minP(double value) {
        return number(2, value, MIN_P);
    }

    public Options repetitionPenalty(double value) {
        return number(3, value, REPETITION_PENALTY);
    }

    public Options frequencyPenalty(double value) {
        return number(4, value, 0);
    }

    public Options presencePenalty(double value) {
        return number(5, value, 0);
    }

    /** The same seed gives the same text. */
    public Options seed(long value) {
        seed = value;
        given |= SEED;
        return this;
    }

    /** Ends before this text. */
    public Options stop(String text) {
        stop.add(Native.utf8(text));
        return this;
    }

    /** When the context is full, forget the oldest half and go on. */
    public Options slide(boolean value) {
        slide = value;
        return this;
    }

    private Options number(int place, double value, int bit) {
        numbers[place] = value;
        given |= bit;
        return this;
    }

    long begin(long session, String text, boolean chats) {
        byte[][] stops = stop.toArray(new byte[0][]);
        byte[] prompt = Native.utf8(text);
        return Native.begin(
                session, prompt, chats, maxNewTokens, given, numbers, topK, seed, stops, slide);
    }
}

package dev.satchel;

/** An answer that is being made, piece by piece. */
public final class Generation implements AutoCloseable {
    private final long handle;

    Generation(long handle) {
        this.handle = handle;
    }

    /** The next piece of text, maybe empty; null when there is no more. It computes, so not here on
     * a thread that draws. */
    public String next() {
        byte[] piece = Native.next(handle);
        return piece == null ? null : Native.text(piece);
    }

    /** All that is left of the text. */
    public String text() {
        StringBuilder whole = new StringBuilder();
        for (String piece = next(); piece != null; piece = next()) {
            whole.append(piece);
        }
        return whole.toString();
    }

    /** How fast it was so far, and why it ended. */
    public Stats stats() {
        byte[][] reason = new byte[1][];
        double[] values = Native.stats(handle, reason);
        return new Stats(values, Native.text(reason[0]));
    }

    @Override
    public void close() {
        Native.generationClose(handle);
    }

    public static final class Stats {
        public final int promptTokens;
        public final int reusedTokens;
        public final int newTokens;
        public final double prefillSeconds;
        public final double decodeSeconds;
        public final double timeToFirstToken;
        /** end_token, stop_string, max_new_tokens, context_full; empty while it goes on. */
        public final String stopReason;

        Stats(double[] values, String stopReason) {
            promptTokens = (int) values[0];
            reusedTokens = (int) values[1];
            newTokens = (int) values[2];
            prefillSeconds = values[3];
            decodeSeconds = values[4];
            timeToFirstToken = values[5];
            this.stopReason = stopReason;
        }

        public double decodeTokensPerSecond() {
            return decodeSeconds > 0 ? (newTokens - 1) / decodeSeconds : 0;
        }
    }
}

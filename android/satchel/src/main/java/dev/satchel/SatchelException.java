package dev.satchel;

/** What went wrong, and what to do about it. */
public final class SatchelException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** As in satchel.h: 2 for a file that is no program, 5 for a full context, 10 for misuse, … */
    public final int code;

    public final String advice;

    SatchelException(int code, byte[] message, byte[] advice) {
        super(Native.text(message));
        this.code = code;
        this.advice = Native.text(advice);
    }
}

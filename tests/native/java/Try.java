import dev.satchel.Generation;
import dev.satchel.Model;
import dev.satchel.Options;
import dev.satchel.SatchelException;
import dev.satchel.Session;
import java.io.PrintStream;
import java.util.Arrays;

/** What tests/native/test_jni.py compares with Python: java Try PROGRAM COMMAND TEXT… */
public final class Try {
    public static void main(String[] words) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        // Where it runs may stand behind the command: chat@vulkan.
        String[] command = words[1].split("@");
        String target = command.length > 1 ? command[1] : null;
        try (Model model = Model.open(words[0], 0, 0, false, target);
                Session session = model.session()) {
            switch (command[0]) {
                case "chat":
                    session.addMessage("system", "Be brief.");
                    for (String text : Arrays.copyOfRange(words, 2, words.length)) {
                        out.println(session.chat(text, new Options().maxNewTokens(12)).text());
                    }
                    break;
                case "sample":
                    Options options = new Options().maxNewTokens(20).temperature(0.9).topK(7);
                    Generation made = session.complete(words[2], options.topP(0.9).seed(3));
                    out.println(made.text());
                    out.println(made.stats().stopReason + " " + made.stats().newTokens);
                    break;
                case "tokens":
                    int[] tokens = model.tokenize(words[2], false);
                    out.println(Arrays.toString(tokens));
                    out.println(model.detokenize(tokens, true));
                    break;
                case "info":
                    out.println(model.context() + " " + model.vocabulary() + " " + model.fileSize());
                    out.println(model.metadata());
                    break;
                case "misuse":
                    misuse(model, session, out);
                    break;
                default:
                    throw new IllegalArgumentException(words[1]);
            }
        } catch (SatchelException error) {
            out.println(error.code + ": " + error.getMessage() + ". " + error.advice);
        }
    }

    private static void misuse(Model model, Session session, PrintStream out) throws Exception {
        Generation first = session.complete("a", new Options().maxNewTokens(3));
        Generation second = session.complete("b", new Options().maxNewTokens(3));
        expect(10, first::next, out);
        second.close();
        second.close();
        expect(10, second::next, out);
        expect(4, () -> session.complete("x", new Options().topP(7)), out);
        expect(4, () -> model.session("no such adapter"), out);
        session.close();
        expect(10, () -> session.chat("x"), out);
        model.close();
        expect(10, model::session, out);
    }

    private static void expect(int code, Runnable work, PrintStream out) {
        try {
            work.run();
            out.println("nothing went wrong");
        } catch (SatchelException error) {
            out.println(error.code == code ? "right" : "wrong " + error.code);
        }
    }
}

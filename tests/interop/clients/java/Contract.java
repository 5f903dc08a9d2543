import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;

/** The line protocol of ../README.md: words of a command in, one line of JSON out. A client is its four or five verbs. */
abstract class Contract {
    private static final String TOLD = System.getenv("CLIENT_SECONDS");
    static final long PATIENCE_MS = TOLD == null ? 60_000 : 1000 * Long.parseLong(TOLD);
    /** Of members: shorter than requests may take, as old consumers want it. */
    static final long SESSION_MS = Math.max(6_000, Math.min(20_000, PATIENCE_MS / 2));

    private static final Properties SETTINGS = new Properties();

    /** Lets a client give up as early as it is told to, and adds its settings. What a release does not know, it ignores. */
    static Properties impatient(Properties properties) {
        if (TOLD != null) {
            String patience = Long.toString(PATIENCE_MS);
            for (String name : new String[] {"metadata.fetch.timeout.ms", "max.block.ms", "request.timeout.ms", "default.api.timeout.ms"}) {
                properties.put(name, patience);
            }
            properties.put("delivery.timeout.ms", Long.toString(PATIENCE_MS + 1000));
        }
        properties.putAll(SETTINGS);
        return properties;
    }

    /** A record: of the ledger when it goes out, of a topic when it came in. A time that nobody told is null. */
    static final class Entry {
        long offset = -1;
        Long timestamp;
        byte[] key;
        byte[] value;
        final List<String> headerNames = new ArrayList<>();
        final List<byte[]> headerValues = new ArrayList<>();
    }

    abstract List<Long> produce(String topic, String codec, boolean idempotent, List<Entry> entries) throws Exception;

    abstract List<Entry> consume(String topic, int count) throws Exception;

    /** Returns offsets that the first member saw, then those of the second. */
    abstract List<List<Long>> resume(String group, String topic, int first, int count) throws Exception;

    /** Returns JSON: who had which partitions in each stage, and what was read. */
    abstract String group(String group, String topic, int count) throws Exception;

    /** Returns JSON: what was made, and whether it is gone. */
    abstract String admin(String topic, String name, String value) throws Exception;

    final void serve() throws IOException {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("{\"ready\":true}");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(answer(line.split("\t", -1)));
            } catch (Exception | LinkageError failure) {
                Throwable cause = failure.getCause() == null ? failure : failure.getCause();
                failure.printStackTrace();
                out.println("{\"error\":" + quoted(failure + " / " + cause) + "}");
            }
        }
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "settings":
                SETTINGS.clear();
                for (String line : Files.readAllLines(Paths.get(words[1]))) {
                    SETTINGS.put(line.substring(0, line.indexOf('=')), line.substring(line.indexOf('=') + 1));
                }
                return "{}";
            case "produce":
                return "{\"offsets\":" + produce(words[1], words[2], words[3].equals("1"), entries(words[4])) + "}";
            case "consume":
                List<String> records = new ArrayList<>();
                for (Entry entry : consume(words[1], Integer.parseInt(words[2]))) {
                    records.add(json(entry));
                }
                return "{\"records\":" + records + "}";
            case "resume":
                return "{\"read\":" + resume(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4])) + "}";
            case "group":
                return group(words[1], words[2], Integer.parseInt(words[3]));
            case "admin":
                return admin(words[1], words[2], words[3]);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static List<Entry> entries(String path) throws IOException {
        List<Entry> entries = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(path))) {
            String[] cells = line.split("\t", -1);
            Entry entry = new Entry();
            entry.timestamp = Long.valueOf(cells[0]);
            entry.key = bytes(cells[1]);
            entry.value = bytes(cells[2]);
            for (int i = 3; i < cells.length; i += 2) {
                entry.headerNames.add(new String(bytes(cells[i]), StandardCharsets.UTF_8));
                entry.headerValues.add(bytes(cells[i + 1]));
            }
            entries.add(entry);
        }
        return entries;
    }

    private static String json(Entry entry) {
        List<String> headers = new ArrayList<>();
        for (int i = 0; i < entry.headerNames.size(); i++) {
            byte[] name = entry.headerNames.get(i).getBytes(StandardCharsets.UTF_8);
            headers.add("[" + base64(name) + "," + base64(entry.headerValues.get(i)) + "]");
        }
        return "[" + entry.offset + "," + entry.timestamp + "," + base64(entry.key) + "," + base64(entry.value) + "," + headers + "]";
    }

    private static byte[] bytes(String text) {
        return text.equals("~") ? null : Base64.getDecoder().decode(text);
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? "null" : '"' + Base64.getEncoder().encodeToString(bytes) + '"';
    }

    static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            quoted.append(letter < ' ' || letter == '"' || letter == '\\' ? ' ' : letter);
        }
        return quoted.append('"').toString();
    }
}

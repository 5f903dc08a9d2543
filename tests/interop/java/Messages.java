import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;

/**
 * Kafka's generated message classes on standard input and output: a line of JSON in, a line of JSON out.
 *
 * <pre>
 * {"op": "versions", "message": "FetchRequest"}                              {"lowest": 0, "highest": 17} or {}
 * {"op": "encode", "message": M, "version": V, "values": {...}, "at": W}     {"bytes": base64}
 * {"op": "decode", "message": M, "version": V, "bytes": base64}              {"values": {...}, "bytes": base64, "rest": N}
 * </pre>
 *
 * Values have the form of Kafka's JSON converters, read as of version V. W is the version to write and may be left out.
 * The bytes of "decode" are those that the decoded message is written as, "rest" is what the reader left over. Beyond
 * the converters, records are base64 both ways and "_unknownTaggedFields" holds [tag, base64] pairs in any struct.
 * What a class refuses is {"error": name of the exception and its message}.
 */
public final class Messages {
    private static final String UNKNOWN = "_unknownTaggedFields";
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
    };
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Class<?>> CLASSES = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        String line;
        while ((line = in.readLine()) != null) {
            out.println(JSON.writeValueAsString(answer((ObjectNode) JSON.readTree(line))));
        }
        out.flush();
    }

    private static ObjectNode answer(ObjectNode question) throws Exception {
        Class<?> kind = kind(question.get("message").asText());
        ObjectNode answer = JSON.createObjectNode();
        if (question.get("op").asText().equals("versions")) {
            if (kind != null) {
                answer.put("lowest", kind.getField("LOWEST_SUPPORTED_VERSION").getShort(null));
                answer.put("highest", kind.getField("HIGHEST_SUPPORTED_VERSION").getShort(null));
            }
            return answer;
        }
        short version = (short) question.get("version").asInt();
        try {
            if (question.get("op").asText().equals("encode")) {
                Message message = fromJson(kind, question.get("values"), version);
                short at = question.has("at") ? (short) question.get("at").asInt() : version;
                answer.put("bytes", encode(message, at));
            } else {
                Message message = (Message) kind.getConstructor().newInstance();
                ByteBuffer buffer = ByteBuffer.wrap(question.get("bytes").binaryValue());
                message.read(new ByteBufferAccessor(buffer), version);
                answer.set("values", toJson(kind, message, version));
                answer.put("bytes", encode(message, version));
                answer.put("rest", buffer.remaining());
            }
        } catch (InvocationTargetException e) {
            answer.put("error", e.getCause().toString());
        } catch (RuntimeException e) {
            answer.put("error", e.toString());
        }
        return answer;
    }

    private static Class<?> kind(String name) {
        return CLASSES.computeIfAbsent(name, key -> {
            for (String found : PACKAGES) {
                for (String suffix : new String[] {"Data", ""}) {
                    try {
                        return Class.forName(found + key + suffix);
                    } catch (ClassNotFoundException e) {
                        continue;
                    }
                }
            }
            return null;
        });
    }

    private static byte[] encode(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes fewer than size() said");
        }
        return buffer.array();
    }

    private static Message fromJson(Class<?> kind, JsonNode values, short version) throws Exception {
        Class<?> converter = Class.forName(kind.getName() + "JsonConverter");
        Object message = converter.getMethod("read", JsonNode.class, short.class).invoke(null, values, version);
        addUnknown(values, (Message) message);
        return (Message) message;
    }

    private static JsonNode toJson(Class<?> kind, Message message, short version) throws Exception {
        Class<?> converter = Class.forName(kind.getName() + "JsonConverter");
        Method write = converter.getMethod("write", kind, short.class, boolean.class);
        JsonNode values = (JsonNode) write.invoke(null, message, version, true);
        complete((ObjectNode) values, message);
        return values;
    }

    private static void addUnknown(JsonNode values, Message message) throws Exception {
        if (values.has(UNKNOWN)) {
            for (JsonNode pair : values.get(UNKNOWN)) {
                message.unknownTaggedFields().add(new RawTaggedField(pair.get(0).asInt(), pair.get(1).binaryValue()));
            }
        }
        Iterator<Map.Entry<String, JsonNode>> entries = values.fields();
        while (entries.hasNext()) {
            Map.Entry<String, JsonNode> entry = entries.next();
            if (entry.getKey().equals(UNKNOWN) || !entry.getValue().isContainerNode()) {
                continue;
            }
            Object part = message.getClass().getMethod(entry.getKey()).invoke(message);
            if (part instanceof Message) {
                addUnknown(entry.getValue(), (Message) part);
            } else if (part instanceof Collection) {
                Iterator<JsonNode> nodes = entry.getValue().elements();
                for (Object element : (Collection<?>) part) {
                    JsonNode node = nodes.next();
                    if (element instanceof Message) {
                        addUnknown(node, (Message) element);
                    }
                }
            }
        }
    }

    /** Puts records and unknown tagged fields into what a JSON converter wrote. */
    private static void complete(ObjectNode values, Message message) throws Exception {
        Iterator<Map.Entry<String, JsonNode>> entries = values.fields();
        while (entries.hasNext()) {
            Map.Entry<String, JsonNode> entry = entries.next();
            JsonNode node = entry.getValue();
            if (!node.isContainerNode() && !node.isBinary()) {
                continue;
            }
            Object part = message.getClass().getMethod(entry.getKey()).invoke(message);
            if (part instanceof Message) {
                complete((ObjectNode) node, (Message) part);
            } else if (part.getClass().getSimpleName().equals("MemoryRecords")) { // its package differs between versions
                ByteBuffer buffer = (ByteBuffer) part.getClass().getMethod("buffer").invoke(part);
                byte[] bytes = new byte[buffer.remaining()];
                buffer.get(bytes);
                entry.setValue(values.binaryNode(bytes));
            } else if (part instanceof Collection && node.isArray()) {
                Iterator<JsonNode> nodes = node.elements();
                for (Object element : (Collection<?>) part) {
                    JsonNode child = nodes.next();
                    if (element instanceof Message) {
                        complete((ObjectNode) child, (Message) element);
                    }
                }
            }
        }
        if (!message.unknownTaggedFields().isEmpty()) {
            ArrayNode pairs = values.putArray(UNKNOWN);
            for (RawTaggedField field : message.unknownTaggedFields()) {
                pairs.addArray().add(field.tag()).add(field.data());
            }
        }
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;

/**
 * The generated message classes of any release from 2.3 on: a line of JSON in, a line of JSON out.
 *
 * <pre>
 * {"message": M, "version": V, "values": {...}}    {"written": base64, "again": base64, "rest": N}, or {} without such a class
 * </pre>
 *
 * "written" are the bytes of a message with these values, "again" those of a message read from "written", "rest" what the
 * reader left over. Values have the form of Kafka's JSON converters, which the first releases do not have: hence setters.
 * What a class refuses is {"error": name of the exception and its message}.
 */
public final class ReleaseMessages {
    private static final String UNKNOWN = "_unknownTaggedFields";
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.raft.generated.",
        "kafka.internals.generated.",
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
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        out.flush();
    }

    private static ObjectNode answer(JsonNode question) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        Class<?> kind = kind(question.get("message").asText());
        if (kind == null) {
            return answer;
        }
        short version = (short) question.get("version").asInt();
        try {
            byte[] written = encode((Message) struct(kind, question.get("values")), version);
            Message again = (Message) kind.getConstructor().newInstance();
            ByteBuffer buffer = ByteBuffer.wrap(written);
            again.read(new ByteBufferAccessor(buffer), version);
            answer.put("written", written);
            answer.put("again", encode(again, version));
            answer.put("rest", buffer.remaining());
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

    /** 2.3 has no cache of sizes. */
    private static byte[] encode(Message message, short version) throws Exception {
        Method size = method(Message.class, "size");
        Object cache = size.getParameterCount() == 1 ? null : size.getParameterTypes()[0].getConstructor().newInstance();
        int bytes = (int) (cache == null ? size.invoke(message, version) : size.invoke(message, cache, version));
        ByteBuffer buffer = ByteBuffer.allocate(bytes);
        Object out = new ByteBufferAccessor(buffer);
        Method write = method(Message.class, "write");
        if (cache == null) {
            write.invoke(message, out, version);
        } else {
            write.invoke(message, out, cache, version);
        }
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes fewer than size() said");
        }
        return buffer.array();
    }

    private static Method method(Class<?> kind, String name) {
        for (Method found : kind.getMethods()) {
            if (found.getName().equals(name) && !found.isBridge()) {
                return found;
            }
        }
        throw new IllegalStateException(kind + " has no method " + name);
    }

    private static Object struct(Class<?> kind, JsonNode values) throws Exception {
        Object made = kind.getConstructor().newInstance();
        Iterator<Map.Entry<String, JsonNode>> entries = values.fields();
        while (entries.hasNext()) {
            Map.Entry<String, JsonNode> entry = entries.next();
            String name = entry.getKey();
            if (name.equals(UNKNOWN)) {
                addUnknown(made, entry.getValue());
                continue;
            }
            Method setter = method(kind, "set" + name.substring(0, 1).toUpperCase() + name.substring(1));
            setter.invoke(made, value(setter.getGenericParameterTypes()[0], entry.getValue()));
        }
        return made;
    }

    /** 2.3 has no tagged fields. */
    @SuppressWarnings("unchecked")
    private static void addUnknown(Object message, JsonNode pairs) throws Exception {
        List<Object> unknown = (List<Object>) method(message.getClass(), "unknownTaggedFields").invoke(message);
        Class<?> kind = Class.forName("org.apache.kafka.common.protocol.types.RawTaggedField");
        for (JsonNode pair : pairs) {
            unknown.add(kind.getConstructor(int.class, byte[].class).newInstance(pair.get(0).asInt(), pair.get(1).binaryValue()));
        }
    }

    @SuppressWarnings("unchecked")
    private static Object value(Type type, JsonNode node) throws Exception {
        if (type instanceof ParameterizedType) {
            return node.isNull() ? null : elements(new ArrayList<>(), ((ParameterizedType) type).getActualTypeArguments()[0], node);
        }
        Class<?> kind = (Class<?>) type;
        if (node.isNull()) {
            return null;
        } else if (kind == boolean.class || kind == Boolean.class) {
            return node.asBoolean();
        } else if (kind == byte.class || kind == Byte.class) {
            return (byte) node.asInt();
        } else if (kind == short.class || kind == Short.class) {
            return (short) node.asInt();
        } else if (kind == int.class || kind == Integer.class) {
            return node.asInt();
        } else if (kind == long.class || kind == Long.class) {
            return node.asLong();
        } else if (kind == double.class || kind == Double.class) {
            return node.asDouble();
        } else if (kind == String.class) {
            return node.asText();
        } else if (kind == byte[].class) {
            return node.binaryValue();
        } else if (kind == ByteBuffer.class) {
            return ByteBuffer.wrap(node.binaryValue());
        } else if (kind.getSimpleName().equals("Uuid") || kind.getSimpleName().equals("UUID")) {
            ByteBuffer bytes = ByteBuffer.wrap(java.util.Base64.getUrlDecoder().decode(node.asText()));
            return kind.getConstructor(long.class, long.class).newInstance(bytes.getLong(), bytes.getLong());
        } else if (kind.getSimpleName().equals("BaseRecords")) { // its package differs between releases
            Class<?> records = Class.forName(kind.getPackage().getName() + ".MemoryRecords");
            return records.getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(node.binaryValue()));
        } else if (Collection.class.isAssignableFrom(kind)) {
            Type element = ((ParameterizedType) kind.getGenericSuperclass()).getActualTypeArguments()[0];
            return elements((Collection<Object>) kind.getConstructor().newInstance(), element, node);
        }
        return struct(kind, node);
    }

    private static Collection<Object> elements(Collection<Object> made, Type type, JsonNode node) throws Exception {
        for (JsonNode each : node) {
            made.add(value(type, each));
        }
        return made;
    }
}

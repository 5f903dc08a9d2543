import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Sends records with the Java producer of any Kafka version from 0.8.2 on: BOOTSTRAP TOPIC=CODEC... .
 *
 * A line of standard input: topic, timestamp, key, value, then names and values of headers, separated by tabs; bytes in
 * base64, null as "~". What a version does not know (timestamps before 0.10, headers before 0.11) is left out. A line of a
 * topic and one of "begin", "commit", "abort" makes that topic's producer a transactional one.
 */
public final class Produce {
    private Produce() { }

    public static void main(String[] args) throws Exception {
        Map<String, String> codecs = new HashMap<>();
        for (int i = 1; i < args.length; i++) {
            String[] pair = args[i].split("=");
            codecs.put(pair[0], pair[1]);
        }
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        List<Future<?>> sent = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            String topic = parts[0];
            boolean order = parts.length == 2;
            if (!producers.containsKey(topic)) {
                producers.put(topic, connect(args[0], topic, codecs.get(topic), order));
            }
            KafkaProducer<byte[], byte[]> producer = producers.get(topic);
            if (order) {
                KafkaProducer.class.getMethod("flush").invoke(producer);  // or an abort would keep records from being sent at all
                KafkaProducer.class.getMethod(parts[1] + "Transaction").invoke(producer);
            } else {
                sent.add(producer.send(record(parts)));
            }
        }
        for (KafkaProducer<byte[], byte[]> producer : producers.values()) {
            producer.close();
        }
        for (Future<?> result : sent) {
            result.get();  // throws what went wrong
        }
    }

    private static KafkaProducer<byte[], byte[]> connect(String bootstrap, String topic, String codec, boolean transactional)
            throws ReflectiveOperationException {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("compression.type", codec);
        properties.put("acks", "all");
        properties.put("linger.ms", "100");
        properties.put("max.block.ms", "200000");
        properties.put("delivery.timeout.ms", "200000");
        properties.put("batch.size", "8000");
        if (transactional) {
            properties.put("transactional.id", "producer-of-" + topic);
        }
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
        if (transactional) {
            KafkaProducer.class.getMethod("initTransactions").invoke(producer);
        }
        return producer;
    }

    @SuppressWarnings("unchecked")
    private static ProducerRecord<byte[], byte[]> record(String[] parts) throws ReflectiveOperationException, IOException {
        byte[] key = bytes(parts[2]);
        byte[] value = bytes(parts[3]);
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(parts[0], 0, key, value);
        for (Constructor<?> constructor : ProducerRecord.class.getConstructors()) {
            Class<?>[] types = constructor.getParameterTypes();
            if (types.length == 5 && types[2] == Long.class) {
                record = (ProducerRecord<byte[], byte[]>) constructor.newInstance(parts[0], 0, Long.valueOf(parts[1]), key, value);
            }
        }
        for (Method method : ProducerRecord.class.getMethods()) {
            if (method.getName().equals("headers")) {
                Object headers = method.invoke(record);
                Method add = Class.forName("org.apache.kafka.common.header.Headers").getMethod("add", String.class, byte[].class);
                for (int i = 4; i < parts.length; i += 2) {
                    add.invoke(headers, new String(bytes(parts[i]), StandardCharsets.UTF_8), bytes(parts[i + 1]));
                }
            }
        }
        return record;
    }

    private static byte[] bytes(String text) {
        return text.equals("~") ? null : Base64.getDecoder().decode(text);
    }
}

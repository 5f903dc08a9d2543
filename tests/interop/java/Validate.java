import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * What Kafka's validator makes of produced sets: one JSON object per line in, one out.
 *
 * In: records (base64), magic, codec ("producer" or a name), timestampType, before, after, compacted, now, nextOffset, leaderEpoch.
 * Out: rebuilt, maxTimestamp, records (base64); or error, the code, and the indexes of the records at fault.
 */
public final class Validate {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TopicPartition PARTITION = new TopicPartition("test", 0);
    private static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        @Override public void recordInvalidMagic() { }
        @Override public void recordInvalidOffset() { }
        @Override public void recordInvalidSequence() { }
        @Override public void recordInvalidChecksums() { }
        @Override public void recordNoKeyCompactedTopic() { }
    };

    private Validate() { }

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                out.println(answer(JSON.readTree(line)));
            }
        }
        out.flush();
    }

    private static ObjectNode answer(JsonNode asked) {
        ObjectNode said = JSON.createObjectNode();
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(asked.get("records").textValue())));
        try {
            CompressionType source = CompressionType.NONE;
            for (MutableRecordBatch batch : records.batches()) {
                batch.ensureValid();
                source = batch.compressionType() == CompressionType.NONE ? source : batch.compressionType();
            }
            String codec = asked.get("codec").textValue();
            CompressionType target = codec.equals("producer") ? source : CompressionType.forName(codec);
            LogValidator.ValidationResult result = new LogValidator(records, PARTITION, clock(asked.get("now").longValue()), source,
                Compression.of(target).build(), asked.get("compacted").booleanValue(), (byte) asked.get("magic").intValue(),
                TimestampType.forName(asked.get("timestampType").textValue()), asked.get("before").longValue(),
                asked.get("after").longValue(), asked.get("leaderEpoch").intValue(), AppendOrigin.CLIENT, MetadataVersion.latestProduction())
                .validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(asked.get("nextOffset").longValue()), NO_METRICS, BufferSupplier.NO_CACHING);
            ByteBuffer bytes = result.validatedRecords.buffer();
            byte[] stored = new byte[bytes.remaining()];
            bytes.get(stored);
            said.put("rebuilt", result.messageSizeMaybeChanged).put("maxTimestamp", result.maxTimestampMs)
                .put("records", Base64.getEncoder().encodeToString(stored));
        } catch (RecordValidationException refusal) {
            said.put("error", Errors.forException(refusal.invalidException()).code());
            ArrayNode faulty = said.putArray("faulty");
            refusal.recordErrors().forEach(error -> faulty.add(error.batchIndex));
        } catch (RuntimeException refusal) {
            said.put("error", Errors.forException(refusal).code());
            said.putArray("faulty");
        }
        return said;
    }

    private static Time clock(long now) {
        return (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> method.getReturnType() == long.class ? now : null);
    }
}

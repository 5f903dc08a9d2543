import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Reads one JSON object per line and writes the log bytes that Kafka's own builders make of them.
 *
 * A batch: magic, codec, timestampType, logAppendTime, baseOffset, producerId, producerEpoch, baseSequence, transactional,
 * leaderEpoch, records (offset, timestamp, key, value, headers; bytes in base64 or null). A transaction marker: marker
 * ("COMMIT" or "ABORT"), offset, timestamp, leaderEpoch, producerId, producerEpoch, coordinatorEpoch.
 */
public final class Encode {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Encode() { }

    public static void main(String[] args) throws IOException {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
             OutputStream out = new BufferedOutputStream(System.out)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                JsonNode spec = JSON.readTree(line);
                MemoryRecords records = spec.has("marker") ? marker(spec) : batch(spec);
                ByteBuffer bytes = records.buffer();
                out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            }
        }
    }

    private static MemoryRecords batch(JsonNode spec) throws IOException {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1 << 16),
            (byte) spec.get("magic").intValue(), Compression.of(CompressionType.forName(spec.get("codec").textValue())).build(),
            TimestampType.forName(spec.get("timestampType").textValue()), spec.get("baseOffset").longValue(),
            spec.get("logAppendTime").longValue(), spec.get("producerId").longValue(), spec.get("producerEpoch").shortValue(),
            spec.get("baseSequence").intValue(), spec.get("transactional").booleanValue(), false,
            spec.get("leaderEpoch").intValue(), Integer.MAX_VALUE);
        for (JsonNode record : spec.get("records")) {
            JsonNode list = record.get("headers");
            Header[] headers = new Header[list.size()];
            for (int i = 0; i < headers.length; i++) {
                headers[i] = new RecordHeader(list.get(i).get(0).textValue(), bytes(list.get(i).get(1)));
            }
            builder.appendWithOffset(record.get("offset").longValue(), record.get("timestamp").longValue(),
                bytes(record.get("key")), bytes(record.get("value")), headers);
        }
        return builder.build();
    }

    private static MemoryRecords marker(JsonNode spec) {
        EndTransactionMarker marker = new EndTransactionMarker(ControlRecordType.valueOf(spec.get("marker").textValue()),
            spec.get("coordinatorEpoch").intValue());
        return MemoryRecords.withEndTransactionMarker(spec.get("offset").longValue(), spec.get("timestamp").longValue(),
            spec.get("leaderEpoch").intValue(), spec.get("producerId").longValue(), spec.get("producerEpoch").shortValue(),
            marker);
    }

    private static byte[] bytes(JsonNode node) throws IOException {
        return node.isNull() ? null : node.binaryValue();
    }
}

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Utils;

/**
 * Reads log bytes from standard input and prints what a consumer would see, one JSON object per line as in the golden data's
 * records.jsonl: control batches left out, checksums verified. The first damage ends the list with a line {"error": ...}.
 */
public final class Decode {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Decode() { }

    public static void main(String[] args) throws IOException {
        ByteBuffer data = ByteBuffer.wrap(System.in.readAllBytes());
        try (Writer out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8))) {
            try {
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
                    batch.ensureValid();
                    if (!batch.isControlBatch()) {
                        print(batch, out);
                    }
                }
            } catch (KafkaException | IllegalArgumentException | IllegalStateException damage) {
                out.write(JSON.writeValueAsString(Map.of("error", damage.toString())) + "\n");
            }
        }
    }

    private static void print(MutableRecordBatch batch, Writer out) throws IOException {
        try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
            while (records.hasNext()) {
                Record record = records.next();
                record.ensureValid();
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("offset", record.offset());
                line.put("timestamp", record.timestamp());
                line.put("timestampType", batch.timestampType().name);
                line.put("key", base64(Utils.toNullableArray(record.key())));
                line.put("value", base64(Utils.toNullableArray(record.value())));
                List<List<String>> headers = new ArrayList<>();
                for (Header header : record.headers()) {
                    headers.add(Arrays.asList(header.key(), base64(header.value())));
                }
                line.put("headers", headers);
                out.write(JSON.writeValueAsString(line) + "\n");
            }
        }
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}

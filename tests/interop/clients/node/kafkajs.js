// kafkajs: BOOTSTRAP. The line protocol of ../README.md. Snappy, LZ4 and zstd are plug-ins of it.
"use strict";
const fs = require("node:fs");
const readline = require("node:readline");
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require("kafkajs");
const lz4 = require("lz4-napi");
const fzstd = require("fzstd");
const { ZstdCodec } = require("zstd-codec");

const TOLD = process.env.CLIENT_SECONDS;
const PATIENCE_MS = TOLD ? 1000 * Number(TOLD) : 60000;
const SESSION_MS = Math.max(6000, Math.min(20000, PATIENCE_MS / 2));
const IMPATIENT = TOLD ? { requestTimeout: PATIENCE_MS, connectionTimeout: PATIENCE_MS, retry: { retries: 3 } } : { retry: { retries: 8 } };
const CODECS = { none: "None", gzip: "GZIP", snappy: "Snappy", lz4: "LZ4", zstd: "ZSTD" };

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from((await zstd()).compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(fzstd.decompress(buffer)),
});
const zstd = () => new Promise((resolve) => ZstdCodec.run((library) => resolve(new library.Simple())));

let kafka = client({});

function client(more) {
  return new Kafka({ clientId: "kafkajs", brokers: [process.argv[2]], logLevel: logLevel.WARN, ...IMPATIENT, ...more });
}

// Takes settings by the names of librdkafka; `retries` is its own.
function settings(path) {
  const told = Object.fromEntries(fs.readFileSync(path, "utf8").trimEnd().split("\n").map((line) => {
    const at = line.indexOf("=");
    return [line.slice(0, at), line.slice(at + 1)];
  }));
  const file = (name) => (told[name] ? fs.readFileSync(told[name]) : undefined);
  const more = {};
  if (told["security.protocol"].endsWith("SSL")) {
    more.ssl = { ca: file("ssl.ca.location"), cert: file("ssl.certificate.location"), key: file("ssl.key.location") };
  }
  if (told["sasl.mechanism"]) {
    more.sasl = { mechanism: told["sasl.mechanism"].toLowerCase(), username: told["sasl.username"], password: told["sasl.password"] };
  }
  if (told.retries) more.retry = { retries: Number(told.retries) };
  kafka = client(more);
  return {};
}

const unb64 = (cell) => (cell === "~" ? null : Buffer.from(cell, "base64"));
const b64 = (bytes) => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString("base64"));

async function until(what, reached) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await reached())) {
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function entries(path) {
  return fs.readFileSync(path, "utf8").trimEnd().split("\n").map((line) => {
    const [timestamp, key, value, ...rest] = line.split("\t");
    const headers = {};
    for (let i = 0; i < rest.length; i += 2) headers[unb64(rest[i]).toString()] = unb64(rest[i + 1]);
    return { partition: 0, timestamp, key: unb64(key), value: unb64(value), headers };
  });
}

async function produce(topic, codec, idempotent, path) {
  const producer = kafka.producer({ idempotent: idempotent === "1", allowAutoTopicCreation: false });
  await producer.connect();
  const messages = entries(path);
  const [{ baseOffset }] = await producer.send({ topic, acks: -1, compression: CompressionTypes[CODECS[codec]], messages });
  await producer.disconnect();
  return { offsets: messages.map((_, index) => Number(baseOffset) + index) };
}

function consumer(groupId) {
  const times = { sessionTimeout: SESSION_MS, heartbeatInterval: 200, maxWaitTimeInMs: 100, rebalanceTimeout: 10000 };
  return kafka.consumer({ groupId, ...times, allowAutoTopicCreation: false });
}

// It has no consumer without a group, so a reader is a group of its own.
async function read(groupId, topic, count, commit) {
  const found = [];
  const reader = consumer(groupId);
  await reader.connect();
  await reader.subscribe({ topic, fromBeginning: true });
  await reader.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      if (found.length < count) found.push(message);
    },
  });
  await until("records", () => found.length >= count).catch(() => {});
  if (commit) {
    const offset = String(Number(found[found.length - 1].offset) + 1);
    await reader.commitOffsets([{ topic, partition: 0, offset, metadata: "by kafkajs" }]);
  }
  await reader.disconnect();
  return found;
}

async function consume(topic, count) {
  const found = await read(`reader-of-${topic}`, topic, Number(count), false);
  return {
    records: found.map((each) => [
      Number(each.offset),
      Number(each.timestamp),
      b64(each.key),
      b64(each.value),
      Object.entries(each.headers || {}).map(([name, value]) => [b64(name), b64(value)]),
    ]),
  };
}

async function resume(group, topic, first, count) {
  const sizes = [Number(first), Number(count) - Number(first)];
  const found = [];
  for (const size of sizes) found.push((await read(group, topic, size, true)).map((each) => Number(each.offset)));
  return { read: found };
}

async function member(group, topic) {
  const self = { partitions: [], read: new Set(), consumer: consumer(group) };
  await self.consumer.connect();
  await self.consumer.subscribe({ topic, fromBeginning: true });
  self.consumer.on(self.consumer.events.GROUP_JOIN, ({ payload }) => {
    self.partitions = [...(payload.memberAssignment[topic] || [])].sort();
  });
  await self.consumer.run({
    eachMessage: async ({ partition, message }) => self.read.add(`[${partition},${message.offset}]`),
  });
  return self;
}

async function group(name, topic, count) {
  const one = await member(name, topic);
  await until("one member", () => one.partitions.length === 2);
  const stages = [[one.partitions]];
  const two = await member(name, topic);
  await until("two members", () => one.partitions.length === 1 && two.partitions.length === 1);
  stages.push([one.partitions, two.partitions]);
  await two.consumer.disconnect();
  await until("one member again", () => one.partitions.length === 2);
  stages.push([one.partitions]);
  const all = () => new Set([...one.read, ...two.read]);
  await until("all records", () => all().size >= Number(count));
  await one.consumer.disconnect();
  return { stages, read: [...all()].map((each) => JSON.parse(each)) };
}

async function admin(topic, name, value) {
  const client = kafka.admin();
  await client.connect();
  const configEntries = [{ name, value }];
  await client.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: 1, configEntries }], waitForLeaders: true });
  const described = await client.fetchTopicMetadata({ topics: [topic] });
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: [name] }];
  const found = (await client.describeConfigs({ resources, includeSynonyms: false })).resources[0].configEntries;
  await client.deleteTopics({ topics: [topic] });
  await until("deletion", async () => !(await client.listTopics()).includes(topic)).catch(() => {});
  const gone = !(await client.listTopics()).includes(topic);
  await client.disconnect();
  return { partitions: described.topics[0].partitions.length, value: found[0].configValue, gone };
}

const VERBS = { settings, produce, consume, resume, group, admin };

async function main() {
  console.log(JSON.stringify({ ready: true }));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split("\t");
    let reply;
    try {
      reply = await VERBS[verb](...words);
    } catch (error) {
      console.error(error);
      reply = { error: String(error) };
    }
    console.log(JSON.stringify(reply));
  }
  process.exit(0);
}

main();

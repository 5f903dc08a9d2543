"""A file in memory."""


class Memory:
    """A ReadableFile that counts the bytes read from it."""

    path = "memory"

    def __init__(self, content: bytes | bytearray) -> None:
        self.content, self.size, self.bytes_read = bytes(content), len(content), 0

    def fileno(self) -> None: ...

    def read_at(self, position: int, length: int) -> bytes:
        self.bytes_read += length
        return self.content[position : position + length]

    def read_into(self, position: int, buffer: memoryview) -> int:
        content = self.read_at(position, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        pass

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        pass

"""The interface that a tool receives, on dictionaries instead of files and sockets."""


class Page:
    """A response: final ``url``, ``status``, ``headers`` with lower-case keys, ``text``."""

    def __init__(self, url, text="", status=200, headers=None):
        self.url = url
        self.text = text
        self.status = status
        self.headers = {"content-type": "text/markdown"} if headers is None else headers


class FakeIo:
    """Files by mount path, pages by URL (a text, a ``Page`` or an exception to raise), a log of the calls."""

    def __init__(self, files=None, pages=None, error=None, key="key-1"):
        self.files = dict(files or {})
        self.pages = dict(pages or {})
        self.error = error
        self.idempotency_key = key
        self.calls = []

    def _enter(self, *call):
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    def read(self, path):
        self._enter("read", path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def write(self, path, text):
        self._enter("write", path)
        self.files[path] = text

    def list(self, mount):
        self._enter("list", mount)
        return sorted(path for path in self.files if path.startswith(f"{mount}/"))

    def get(self, url):
        self._enter("get", url)
        if url not in self.pages:
            return Page(url, "not found", 404)
        found = self.pages[url]
        if isinstance(found, Exception):
            raise found
        return Page(url, found) if isinstance(found, str) else found

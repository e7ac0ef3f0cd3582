"""A stand-in for the hub."""

import types


class FakeHub(types.ModuleType):
    """Stands in for the package datasets: a table of 5 rows, or an error."""

    def __init__(self, error=None):
        super().__init__("datasets")
        self.exceptions = types.SimpleNamespace(DatasetsError=LookupError)
        self.__spec__ = types.SimpleNamespace()
        self.error, self.calls, self.num_read = error, [], 0

    def load_dataset(self, name, **options):
        self.calls.append((name, options))
        if self.error is not None:
            raise self.error
        return self.read()

    def read(self):
        for number in range(5):
            self.num_read += 1
            yield {"input": f"in {number}", "output": f"out {number}"}

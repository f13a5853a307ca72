"""morok: a tensor compiler. `import morok as mk`."""

from __future__ import annotations

from morok import config, errors
from morok.dtype import DType, dtypes

__all__ = ["DType", "config", "dtypes", "errors"]
__version__ = "0.1.0"

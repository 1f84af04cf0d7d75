"""Federated analytics for keyboards: words in common, statistics, and accounting."""

import os
import warnings

# TensorFlow reads it when it is first imported. A value that the user has set stays.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.filterwarnings("ignore", message="pkg_resources is deprecated")

"""The data of the map on a page in a file."""

import json
import re
from base64 import urlsafe_b64decode
from gzip import decompress


def the_map(page: str) -> dict:
    """Return the rows and details of the nodes."""
    (data,) = re.findall(r'<script[^>]*\bid="fleet-data"[^>]*>([^<]*)<', page)
    return json.loads(decompress(urlsafe_b64decode(data)))


def text_of_map(page: str) -> str:
    """Return all texts of the map, as they are shown."""
    return json.dumps(the_map(page), ensure_ascii=False)

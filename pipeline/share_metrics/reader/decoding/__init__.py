"""Decodes entries into rows and Arrow record batches, with the protobuf runtime (CM-16, PM-13, PM-16…PM-18)."""

from share_metrics.reader.decoding.rows import RawEntry, decode, decode_page, gap_row, to_batch

__all__ = ["RawEntry", "decode", "decode_page", "gap_row", "to_batch"]

"""From relations to streams and back in time: ISTREAM, DSTREAM, RSTREAM, delays, netting, value order."""

package mountowner

import (
	"strings"
	"testing"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/roles/boot"
)

// TestLimits refuses what the flags can't be, and names the flag and its range.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		limits client.Limits
		want   string // empty: it is taken
	}{
		{client.Limits{}, ""},
		{client.Limits{QueueOps: DefaultWriteBehindOps, QueueBytes: DefaultWriteBehindBytes, CacheInodes: client.DefaultCacheInodes}, ""},
		{client.Limits{QueueOps: -1}, "--write-behind-ops: -1 is not 0 to 65536"},
		{client.Limits{QueueBytes: 1}, "--write-behind-bytes: 1 is not 2097152 to 12582912"},
		{client.Limits{CacheInodes: cacheInodesLeast - 1}, "--cache-inodes: 1023 is not 1024 to 4194304"},
		{client.Limits{CacheInodes: cacheInodesMost + 1}, "--cache-inodes: 4194305 is not 1024 to 4194304"},
	} {
		err := CheckLimits(c.limits)
		if c.want == "" && err != nil || c.want != "" && (!boot.IsUsage(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.limits, err, c.want)
		}
	}
}

package boot

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// garbageBytes is how much garbage a process that moves data gathers at least
// before it collects. Such a process has little that lives and makes a MiB of
// garbage for each MiB that it moves: by default it would collect after every few
// requests, which took a third of its processor time.
const garbageBytes = 96 << 20

// spare is never touched, and so takes no memory: the collector counts it among
// what lives, and waits for as much garbage again.
var spare []byte

// tuneCollector has this process collect garbage less often while that is little,
// and more often before it reaches the memory limit of its control group. GOGC and
// GOMEMLIMIT, where they are set, decide instead.
func tuneCollector() {
	if os.Getenv("GOGC") == "" && spare == nil {
		spare = make([]byte, garbageBytes)
		runtime.KeepAlive(spare)
	}
	if limit := groupLimit("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 8 * 7)
	}
}

// groupLimit reads the memory limit, in bytes, from the first of the files that is
// there; 0: none.
func groupLimit(files ...string) int64 {
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || n >= 1<<50 { // "max", or the most that the kernel can say
			return 0
		}
		return n
	}
	return 0
}

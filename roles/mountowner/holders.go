package mountowner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Holder is a process that keeps a mount busy.
type Holder struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	Has     string `json:"has"` // what it has there: cwd, root, exe, fd or map
}

func (h Holder) String() string { return fmt.Sprintf("%s (pid %d, %s)", h.Command, h.PID, h.Has) }

// holdersMost bounds how many are named.
const holdersMost = 20

// holdersTimeout bounds the search for holders.
const holdersTimeout = time.Second

// mapsReader is held while the maps of processes are read.
var mapsReader sync.Mutex

// Holders lists processes that have something open below path. It looks only
// at /proc and never at the mount, which may not answer.
func Holders(path string) []Holder { return holders("/proc", path) }

// holders looks at what processes have open, and only if that tells nothing at
// what they have mapped: to read a process's maps takes a lock that the process
// has while it waits for a file, of this mount or of any other. So that is
// waited for only so long, by one goroutine at a time.
func holders(proc, path string) []Holder {
	found := search(proc, path, opened)
	if len(found) > 0 || !mapsReader.TryLock() {
		return found
	}
	mapped := make(chan []Holder, 1)
	go func() {
		defer mapsReader.Unlock()
		mapped <- search(proc, path, maps)
	}()
	select {
	case found = <-mapped:
	case <-time.After(holdersTimeout):
	}
	return found
}

// search asks of every process whether it holds path.
func search(proc, path string, holds func(proc, path string) string) (found []Holder) {
	procs, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if has := holds(filepath.Join(proc, p.Name()), path); has != "" {
			comm, _ := os.ReadFile(filepath.Join(proc, p.Name(), "comm"))
			found = append(found, Holder{PID: pid, Command: strings.TrimSpace(string(comm)), Has: has})
		}
		if len(found) == holdersMost {
			break
		}
	}
	return found
}

// opened tells what the process has open below path, "" for nothing.
func opened(proc, path string) string {
	below := func(link string) bool {
		target, err := os.Readlink(link)
		return err == nil && within(target, path)
	}
	for _, what := range []string{"cwd", "root", "exe"} {
		if below(filepath.Join(proc, what)) {
			return what
		}
	}
	fds, _ := os.ReadDir(filepath.Join(proc, "fd"))
	for _, fd := range fds {
		if below(filepath.Join(proc, "fd", fd.Name())) {
			return "fd " + fd.Name()
		}
	}
	return ""
}

// maps tells whether the process has a file below path mapped.
func maps(proc, path string) string {
	text, _ := os.ReadFile(filepath.Join(proc, "maps"))
	for line := range bytes.Lines(text) {
		if i := bytes.IndexByte(line, '/'); i >= 0 && within(string(bytes.TrimSpace(line[i:])), path) {
			return "map"
		}
	}
	return ""
}

func within(target, path string) bool {
	target = strings.TrimSuffix(target, " (deleted)")
	return target == path || strings.HasPrefix(target, path+"/")
}

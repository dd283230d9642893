package long

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// sample is what was taken of the machine at one time, by name.
type sample map[string]float64

// figure is one thing that has to stay flat.
type figure struct {
	name   string
	factor float64 // it may grow by this much of itself,
	spare  float64 // and by this much besides: what comes and goes by chance
}

// figures of a process with all replicas and mounts, and of the replicas' folders.
var figures = []figure{
	{"memory MiB", 0.15, 24},
	{"goroutines", 0.1, 40},
	{"descriptors", 0.1, 20},
	{"journal MiB", 0.1, 8},
	{"disk MiB", 0.15, 32},
}

var metricNames = map[string]string{
	"process_resident_memory_bytes": "memory MiB", "go_goroutines": "goroutines", "process_open_fds": "descriptors",
}

var metricLine = regexp.MustCompile(`(?m)^(\w+) (\S+)$`)

// fromMetrics takes what the program says of itself.
func (s sample) fromMetrics(text string) error {
	found := 0
	for _, m := range metricLine.FindAllStringSubmatch(text, -1) {
		name, ok := metricNames[m[1]]
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, "MiB") {
			v /= 1 << 20
		}
		s[name] = v
		found++
	}
	if found != len(metricNames) {
		return fmt.Errorf("%d of %d metrics are there", found, len(metricNames))
	}
	return nil
}

// fromDisk takes the blocks of what is below the replicas' folders.
func (s sample) fromDisk(dir string) error {
	replicas, err := filepath.Glob(filepath.Join(dir, "replica-*"))
	if err != nil {
		return err
	}
	s["disk MiB"], s["journal MiB"] = 0, 0
	for _, r := range replicas {
		all, err := blocks(r)
		if err != nil {
			return err
		}
		journal, err := blocks(filepath.Join(r, "log", "journal"))
		if err != nil {
			return err
		}
		s["disk MiB"] += float64(all) / (1 << 20)
		s["journal MiB"] += float64(journal) / (1 << 20)
	}
	return nil
}

// blocks is the disk space below a folder, in bytes. What goes meanwhile counts nothing.
func blocks(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return n, err
}

// leastSamples are enough for three medians.
const leastSamples = 9

// growth compares the last third of the samples with the second, and returns what has grown by more
// than chance, and a line for each figure.
func growth(samples []sample) (faults, lines []string) {
	third := len(samples) / 3
	for _, f := range figures {
		first, second, last := median(samples[:third], f.name), median(samples[third:2*third], f.name), median(samples[2*third:], f.name)
		line := fmt.Sprintf("%s: %.0f, %.0f, %.0f (medians of thirds)", f.name, first, second, last)
		lines = append(lines, line)
		if last > second*(1+f.factor)+f.spare {
			faults = append(faults, line)
		}
	}
	return faults, lines
}

func median(samples []sample, name string) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, s[name])
	}
	slices.Sort(all)
	return all[len(all)/2]
}

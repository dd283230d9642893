package tidy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ratios are how many times as much we do as a peer, by workload.
type ratios map[string]float64

// measured reads the table of docs/performance.md with all peers: GlusterFS and MooseFS.
func measured(t *testing.T) (gluster, moose ratios) {
	t.Helper()
	gluster, moose = ratios{}, ratios{}
	row := regexp.MustCompile(`(?m)^\| (\S+) \([^)]*\) \| \d+ \| \d+ \(([\d.]+)×\) \| \d+ \(([\d.]+)×\) \| \d+ \([\d.]+×\) \|$`)
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/performance.md"), -1) {
		for i, to := range []ratios{gluster, moose} {
			f, err := strconv.ParseFloat(m[2+i], 64)
			if err != nil {
				t.Fatal(err)
			}
			to[m[1]] = f
		}
	}
	if len(gluster) < 16 {
		t.Fatalf("only %d workloads found", len(gluster))
	}
	return gluster, moose
}

func (r ratios) of(workloads string) (least, most float64) {
	var all []float64
	for _, w := range strings.Fields(workloads) {
		all = append(all, r[w])
	}
	return slices.Min(all), slices.Max(all)
}

// TestFiguresAgree holds what other documents say of our speed to what was measured.
func TestFiguresAgree(t *testing.T) {
	gluster, moose := measured(t)
	g1, g2 := gluster.of("create4k create4k-8 publish stat rename unlink untar git-add-commit")
	m1, m2 := moose.of("create4k create4k-8 publish stat rename unlink untar git-add-commit")
	for doc, wants := range map[string][]string{
		"docs/comparison.md": {
			fmt.Sprintf("%.1f to %.1f times GlusterFS and %.1f to %.1f times MooseFS", g1, g2, m1, m2),
			fmt.Sprintf("GlusterFS wrote %.1f times as fast as we do, and MooseFS %.1f times (`seqwrite`); MooseFS read %.1f times", 1/gluster["seqwrite"], 1/moose["seqwrite"], 1/moose["seqread-cold"]),
		},
		"docs/capacity.md": {"| a MiB of large writes, the same | about " + processorMs(t) + " ms |"},
	} {
		text := read(t, doc)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", doc, want)
			}
		}
	}
}

// processorMs is what a MiB of a large write costs.
func processorMs(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`A large write costs about (\d+) ms of processor time a MiB`).FindStringSubmatch(read(t, "docs/performance.md"))
	if m == nil {
		t.Fatal("docs/performance.md does not say what a large write costs")
	}
	return m[1]
}

package main

import (
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	r := newResults()
	r.targets = []*target{{name: "ours"}, {name: "peer"}}
	for _, v := range []float64{10, 30, 20} {
		r.add(figure{"ours", "stat", "ops/s", v})
		r.add(figure{"peer", "stat", "ops/s", v / 4})
	}
	var b strings.Builder
	r.print(&b)
	if want := "| stat (ops/s) | 20 | 5 (4.00×) |\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("table:\n%s", b.String())
	}
}

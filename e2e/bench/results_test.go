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

func TestSums(t *testing.T) {
	got := sums([][]byte{
		[]byte(`{"fs":"ours","workload":"stat","unit":"ops/s","value":3}` + "\nnoise\n" + `{"fs":"ours","workload":"untar","unit":"files/s","value":4}`),
		[]byte(`{"fs":"ours","workload":"untar","unit":"files/s","value":6}`),
	})
	if len(got) != 2 || got[0].Value != 3 || got[1].Value != 10 || got[1].Unit != "files/s" {
		t.Errorf("%+v", got)
	}
}

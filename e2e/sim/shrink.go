package sim

import "slices"

// Shrink looks for fewer faults with which a plan still fails. fails lives through
// a plan; it may be asked several times, since goroutines do not always react in
// the same order.
func Shrink(p Plan, fails func(Plan) bool) Plan {
	for size := max(len(p.Faults)/2, 1); ; {
		smaller := false
		for from := 0; from < len(p.Faults); {
			less := p
			less.Faults = slices.Delete(slices.Clone(p.Faults), from, min(from+size, len(p.Faults)))
			if fails(less) {
				p, smaller = less, true
				continue
			}
			from += size
		}
		switch {
		case size > 1:
			size /= 2
		case !smaller:
			return p
		}
	}
}

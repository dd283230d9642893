package disk

// random is splitmix64: small, seeded, and the same on every machine and in every
// version of Go, so that a seed means the same crash for ever.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number in [0, n).
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// chance is true in eighths of the cases.
func (r *random) chance(eighths int) bool { return r.below(8) < eighths }

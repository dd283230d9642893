package fsop

import "testing"

// TestSipHash holds the hash to its authors' vector: the first 15 bytes under
// the key 00 01 … 0f.
func TestSipHash(t *testing.T) {
	in := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	if got := sipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, in); got != 0xa129ca6149be45e5 {
		t.Fatalf("%#x", got)
	}
}

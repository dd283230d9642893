package transport

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

// The bytes of version 1; they never change.
func TestGoldenBytes(t *testing.T) {
	h := hello{version: 1, from: 2, fromIncarnation: 3, to: 4, toIncarnation: 5, instance: 0x0102030405060708, volume: "vol-1"}
	const helloBytes = "0100" + "0200000000000000" + "0300000000000000" + "0400000000000000" + "0500000000000000" +
		"0807060504030201" + "05" + "766f6c2d31"
	if got := hex.EncodeToString(h.encode()); got != helloBytes {
		t.Errorf("hello is\n%s, want\n%s", got, helloBytes)
	}
	if got, err := decodeHello(h.encode()); err != nil || got != h {
		t.Errorf("hello is read as %+v, %v", got, err)
	}
	a := answer{verdict: Barred, instance: 7, text: "no"}
	const answerBytes = "0100" + "05" + "0700000000000000" + "0200" + "6e6f"
	if got := hex.EncodeToString(a.encode()); got != answerBytes {
		t.Errorf("verdict is\n%s, want\n%s", got, answerBytes)
	}
	if got, err := decodeAnswer(a.encode()); err != nil || got != a {
		t.Errorf("verdict is read as %+v, %v", got, err)
	}
}

func TestMalformedHellos(t *testing.T) {
	good := hello{version: 1, from: 1, to: 2, volume: "v"}.encode()
	for n := range good {
		if _, err := decodeHello(good[:n]); err == nil {
			t.Errorf("hello cut to %d bytes was read", n)
		}
	}
	if _, err := decodeHello(append(good, 0)); !errors.Is(err, errBadHello) {
		t.Errorf("hello with more: %v", err)
	}
	later := append([]byte{9, 0}, "what a later version says"...)
	if h, err := decodeHello(later); err != nil || h.version != 9 {
		t.Errorf("hello of a later version: %+v, %v", h, err)
	}
	answered := answer{verdict: Accepted, text: "x"}.encode()
	for n := range answered {
		if _, err := decodeAnswer(answered[:n]); err == nil {
			t.Errorf("verdict cut to %d bytes was read", n)
		}
	}
	answered[0] = 2
	var refused *RefusedError
	if _, err := decodeAnswer(answered); !errors.As(err, &refused) || refused.Verdict != WrongVersion {
		t.Errorf("verdict of a later version: %v", err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(hello{version: 1, from: 1, to: 2, volume: "v"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err == nil && h.version == protocolVersion && !bytes.Equal(h.encode(), b) {
			t.Fatalf("%x is read as %+v", b, h)
		}
	})
}

func FuzzVerdict(f *testing.F) {
	f.Add(answer{verdict: Barred, instance: 1, text: "no"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAnswer(b)
		if err == nil && b[0] == protocolVersion && b[1] == 0 && !bytes.Equal(a.encode(), b) {
			t.Fatalf("%x is read as %+v", b, a)
		}
	})
}

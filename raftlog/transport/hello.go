package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// protocolVersion is that of hello, verdict and messages.
const protocolVersion = 1

// Types of frames on a connection between replicas.
const (
	frameHello   = 1
	frameVerdict = 2
	frameMessage = 3
)

const (
	helloFixed      = 2 + 5*8 + 1
	verdictFixed    = 2 + 1 + 8 + 2
	verdictTextMost = 512
)

// Verdict is a listener's answer to a hello. Values are part of the protocol.
type Verdict uint8

// The verdicts.
const (
	Accepted         Verdict = 0
	WrongVersion     Verdict = 1
	WrongVolume      Verdict = 2
	WrongMember      Verdict = 3
	WrongIncarnation Verdict = 4
	Barred           Verdict = 5
	WrongCertificate Verdict = 6
	NotReady         Verdict = 7
)

var verdictNames = [...]string{
	"accepted", "wrong version", "wrong volume", "wrong member",
	"wrong incarnation", "barred", "wrong certificate", "not ready",
}

// String names the verdict.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// RefusedError is another replica's refusal to talk to this one.
type RefusedError struct {
	Verdict Verdict
	Text    string
}

// Error implements error.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused: %s: %s", e.Verdict, e.Text) }

var errBadHello = errors.New("hello is malformed")

// hello is what the dialler says about itself and about whom it means.
type hello struct {
	version         uint16
	from            uint64
	fromIncarnation uint64
	to              uint64
	toIncarnation   uint64
	instance        uint64
	volume          string
}

func (h hello) encode() []byte {
	b := make([]byte, 0, helloFixed+len(h.volume))
	b = binary.LittleEndian.AppendUint16(b, h.version)
	for _, v := range []uint64{h.from, h.fromIncarnation, h.to, h.toIncarnation, h.instance} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(b, byte(len(h.volume)))
	return append(b, h.volume...)
}

// decodeHello reads a hello. Of an unknown version only the version is read.
func decodeHello(b []byte) (hello, error) {
	if len(b) < 2 {
		return hello{}, errBadHello
	}
	h := hello{version: binary.LittleEndian.Uint16(b)}
	if h.version != protocolVersion {
		return h, nil
	}
	if len(b) < helloFixed || len(b) != helloFixed+int(b[helloFixed-1]) {
		return hello{}, errBadHello
	}
	for i, v := range []*uint64{&h.from, &h.fromIncarnation, &h.to, &h.toIncarnation, &h.instance} {
		*v = binary.LittleEndian.Uint64(b[2+8*i:])
	}
	h.volume = string(b[helloFixed:])
	return h, nil
}

// answer is the listener's verdict and its own instance.
type answer struct {
	verdict  Verdict
	instance uint64
	text     string
}

func (a answer) encode() []byte {
	text := a.text[:min(len(a.text), verdictTextMost)]
	b := make([]byte, 0, verdictFixed+len(text))
	b = binary.LittleEndian.AppendUint16(b, protocolVersion)
	b = append(b, byte(a.verdict))
	b = binary.LittleEndian.AppendUint64(b, a.instance)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

var errBadVerdict = errors.New("verdict is malformed")

func decodeAnswer(b []byte) (answer, error) {
	if len(b) < verdictFixed {
		return answer{}, errBadVerdict
	}
	n := int(binary.LittleEndian.Uint16(b[11:]))
	if n > verdictTextMost || len(b) != verdictFixed+n {
		return answer{}, errBadVerdict
	}
	a := answer{verdict: Verdict(b[2]), instance: binary.LittleEndian.Uint64(b[3:]), text: string(b[verdictFixed:])}
	if v := binary.LittleEndian.Uint16(b); v != protocolVersion && a.verdict == Accepted {
		return answer{}, &RefusedError{WrongVersion, fmt.Sprintf("the listener speaks version %d, not %d", v, protocolVersion)}
	}
	return a, nil
}

package framed

import "crypto/tls"

const (
	// copyMost is the size up to which a part is copied when it is sent.
	copyMost = 4 << 10
	// recordMost is what one TLS record holds.
	recordMost = 16 << 10
	// keepMost is how large a batch's own bytes may stay while it is empty.
	keepMost = 8 << 10
)

// batch is a sequence of frames: small bytes copied, large parts by reference.
type batch struct {
	small    []byte
	refs     []ref
	releases []func()
	size     int
}

// ref is a large part that comes after small[:at].
type ref struct {
	at   int
	part []byte
}

func (b *batch) empty() bool { return b.size == 0 }

func (b *batch) add(h Header, parts [][]byte, release func()) {
	b.small = AppendHeader(b.small, h)
	for _, p := range parts {
		if len(p) <= copyMost {
			b.small = append(b.small, p...)
		} else {
			b.refs = append(b.refs, ref{len(b.small), p})
		}
	}
	if release != nil {
		b.releases = append(b.releases, release)
	}
	b.size += HeaderSize + int(h.Length)
}

// done forgets the content, tells its owners, and keeps a little memory.
func (b *batch) done() {
	for _, r := range b.releases {
		r()
	}
	clear(b.refs)
	clear(b.releases)
	b.refs, b.releases, b.size = b.refs[:0], b.releases[:0], 0
	b.small = b.small[:0]
	if cap(b.small) > keepMost {
		b.small = nil
	}
}

// writeTo encrypts the batch into as few records as it needs.
func (b *batch) writeTo(c *tls.Conn) error {
	if len(b.refs) == 0 {
		_, err := c.Write(b.small)
		return err
	}
	p := packer{conn: c, record: GetBuffer(recordMost)[:0]}
	defer func() { PutBuffer(p.record[:0]) }()
	at := 0
	for _, r := range b.refs {
		p.put(b.small[at:r.at])
		p.put(r.part)
		at = r.at
	}
	p.put(b.small[at:])
	p.end()
	return p.err
}

// packer fills records: what comes in whole records is not copied.
type packer struct {
	conn   *tls.Conn
	record []byte
	err    error
}

func (p *packer) put(b []byte) {
	for len(b) > 0 && p.err == nil {
		if whole := len(b) / recordMost * recordMost; len(p.record) == 0 && whole > 0 {
			_, p.err = p.conn.Write(b[:whole])
			b = b[whole:]
			continue
		}
		n := min(len(b), recordMost-len(p.record))
		p.record = append(p.record, b[:n]...)
		b = b[n:]
		if len(p.record) == recordMost {
			p.end()
		}
	}
}

func (p *packer) end() {
	if len(p.record) > 0 && p.err == nil {
		_, p.err = p.conn.Write(p.record)
		p.record = p.record[:0]
	}
}

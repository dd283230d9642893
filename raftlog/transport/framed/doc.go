// Package framed carries frames over one TLS connection. It is the common
// ground of the messages between replicas and of the requests of clients,
// which arrive at the same port.
//
// # Bytes
//
// All numbers are little endian. After the TLS handshake the dialler writes a
// preface, and the listener answers with a greeting:
//
//	preface   "TAKR", version u8 (1), kind u8, zero u16
//	greeting  "TAKR", version u8 (1), code u8, length u16, text
//
// Kind: 1 peer messages, 2 peer stream, 3 client, 4 operator. Code: 0 welcome,
// 1 version unknown, 2 kind unknown or not served, 3 the certificate's role
// may not do that, 4 busy. The text (at most 512 bytes) explains a refusal;
// the connection ends after it.
//
// Then both sides write frames:
//
//	frame     length u32, type u8, zero u8, zero u16, id u64, payload
//
// Length counts the payload only. Type and id mean what the layer above says.
// A peer stream stops being frames when the layer above says so (Conn.Stream).
//
// # What it owns
//
// The order and the bounds: frames leave in the order of the calls of Send,
// and arrive in that order at the one goroutine that calls ReadFrame. A queue
// is bounded in bytes, a frame in size, each step of an accept in time; a
// frame that has begun has to be complete within FrameTimeout; a listener's
// memory for a frame is not taken before 16 KiB of it have arrived.
//
// # How writes work
//
// Send never blocks. When the connection is idle it encrypts and writes in the
// caller's goroutine, without waiting for the socket; only what the socket
// does not take at once is left to a goroutine that lives until the queue is
// empty. A call that finds the connection busy leaves its frame to whoever is
// writing, who takes all that has gathered in one go. So an idle connection
// costs one goroutine, the reader's, and a lone frame makes no hop.
//
// # Who owns the bytes
//
// Send copies parts of up to 4 KiB and refers to larger ones: these belong to
// the connection until release is called (SendRelease), or for ever (Send).
// A payload that ReadFrame returns belongs to the caller, who may give it back
// with PutBuffer when nothing refers to it any more, and need not.
//
// # After a crash
//
// Nothing is kept. A connection that ends has delivered a prefix of the frames
// that were sent; the layers above send again.
package framed

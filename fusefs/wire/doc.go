// Package wire carries requests from a client to the coordinator, and answers
// and notices back, over one authenticated connection.
//
// # Bytes
//
// The connection and its frames are those of raftlog/transport/framed, kinds
// client and operator: TLS 1.3, preface, greeting, frames of {length, type,
// id, payload}. Both sides know these types:
//
//	1 hello    client → server, first; the payload is the upper layer's
//	2 welcome  server → client, the answer; version u16 (1)
//	3 refusal  server → client, instead; the payload is the upper layer's
//	4 request  client → server; id is the client's; 0: no reply is expected
//	5 reply    server → client; the id of the request
//	6 push     server → client; a notice that nobody asked for, id 0
//
// The hello begins with version u16 (1), little endian, added here. Payloads
// are opaque (fusefs/fsop has their codec) and at most PayloadMost bytes long.
//
// # What it owns
//
// Order: requests arrive in the order of the calls of Send; replies and pushes
// arrive in the order of the calls of Reply and Push, at one goroutine. The
// coherence of caches depends on this. Replies need not follow the order of the
// requests.
//
// Bounds: see [Bounds]. It does not own who may do what, what a request means,
// when to give up, or how to find the coordinator. There is no ping here: TCP
// finds dead machines, and the upper layer's keepalives find the rest.
//
// # Who owns the bytes
//
// What is given to Send, Reply and Push must not be changed afterwards; with
// ReplyParts the caller learns when it may be used again. A payload that
// arrives belongs to the receiver for as long as it likes; calling [Release]
// when nothing refers to it any more saves the next large one an allocation.
//
// # After a crash
//
// Nothing is kept. The client cannot know what of its unanswered requests has
// been done: it sends them again, under the identity that they carry.
package wire

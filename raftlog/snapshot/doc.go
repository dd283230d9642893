// Package snapshot carries a checkpoint from one replica to another that is too
// far behind for the journal.
//
// # What it owns
//
// The conversation over one stream: what is offered, what is already there,
// what is sent, at which rate, and when it is enough. What the parts are, where
// they are kept and whether they make a checkpoint only the [Reader] and the
// [Writer] know.
//
// # The conversation
//
// The leader sends, the member that is behind answers.
//
//	sender    offer   a checkpoint
//	receiver  accept  or refuse
//	sender    parts   names, sizes and stamps of some parts, repeatedly
//	receiver  have    how much of each is already there and still good
//	sender    data    what is missing of these parts, and holes
//	...
//	sender    done    how many parts and bytes there were
//	receiver  ready   everything is durable and complete
//	sender    offer   a newer checkpoint, if the journal no longer continues
//	                  this one (the next round sends only what has changed), or
//	          install how new the contents may be, and the term
//	receiver  installed or refuse
//
// A refusal, on both sides any error, ends the conversation. The next one
// resumes: what was received and is still good is not sent again.
//
// # Bytes
//
// The stream begins with a preface of the sender: 8 bytes "takrepck", u16
// version (1). Then both sides send frames. Integers are little endian.
//
//	type u8, length of the payload u32, payload, crc u32: CRC-32C of all before
//
//	1  offer      index u64, term u64, extra: the rest
//	2  parts      count u16, for each: size u64, stamp u64, length u16, name
//	3  data       number of the part within the last parts u16, offset u64,
//	              read at u64 (0: the sender has these bytes only damaged), bytes:
//	              the rest
//	4  done       parts u64, bytes of data u64, of this offer
//	5  install    fence u64 (how new the contents may be), term u64
//	6  hole       number of the part u16, offset u64, read at u64, length u64: zeroes
//	              that take no space
//	7  parts      count u16, for each: size u64, data u64 (bytes that are no
//	              holes), stamp u64, length u16, name
//	16 accept     what the receiver knows u8: 1: the frames 6 and 7. Without it, as
//	              older releases send it, there are 2 and zeroes instead.
//	17 have       count u16, u64 each
//	18 ready      empty
//	19 installed  empty
//	20 refuse     text: the rest
//
// # After a crash
//
// Nothing is kept here. The writer keeps what it received together with the
// index at which it was read, so that the next conversation goes on from there.
package snapshot

package series

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"
)

// decodeBase64 decodes a mail's body. The standard decoder stops at what a
// mailing list's software puts below it. line is where the body begins. unpadded
// says that the "=" at the end are missing, which may be all that is.
func decodeBase64(body []byte, line int) (text []byte, unpadded bool, err error) {
	var out []byte
	digits := make([]byte, 0, len(body))
	for text := range bytes.Lines(body) {
		text = bytes.TrimSpace(text)
		if len(digits)%4 == 0 && bytes.HasSuffix(digits, []byte("=")) && len(text) > 0 {
			// It has ended: a list's footer, or more of what was encoded in pieces.
			if len(text)%4 != 0 || firstOther(text) >= 0 {
				break
			}
			piece, err := decodeDigits(digits, line-1)
			if err != nil {
				return nil, false, err
			}
			out, digits = append(out, piece...), digits[:0]
		}
		if i := firstOther(text); i >= 0 {
			return nil, false, fmt.Errorf("line %d: decode mail: %q is not in base64", line, text[i])
		}
		digits = append(digits, text...)
		line++
	}
	if n := len(digits) % 4; n > 1 {
		unpadded = true
		digits = append(digits, "=="[:4-n]...)
	}
	piece, err := decodeDigits(digits, line-1)
	return append(out, piece...), unpadded, err
}

// firstOther returns the place of the first byte that is not in base64, or -1.
func firstOther(text []byte) int {
	return slices.IndexFunc(text, func(c byte) bool { return !isBase64(c) })
}

func decodeDigits(digits []byte, line int) ([]byte, error) {
	out := make([]byte, base64.StdEncoding.DecodedLen(len(digits)))
	n, err := base64.StdEncoding.Decode(out, digits)
	if err != nil {
		return nil, fmt.Errorf("line %d: decode mail: it is cut, or was changed: %w", line, err)
	}
	return out[:n], nil
}

func isBase64(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '='
}

// decodeQP decodes quoted-printable as git mailinfo does: what is no escape stays
// as it is, and white space at the end of a line is kept, because in a diff it
// is content. The standard decoder refuses the one and removes the other.
func decodeQP(body []byte) []byte {
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		rest := body[i+1:]
		switch {
		case body[i] != '=':
			out = append(out, body[i])
		case bytes.HasPrefix(rest, []byte("\n")):
			i++
		case bytes.HasPrefix(rest, []byte("\r\n")):
			i += 2
		case softBreak(rest) > 0: // blanks that were added on the way (RFC 2045); git keeps them
			i += softBreak(rest)
		default:
			c, ok := hexByte(rest)
			if !ok {
				out = append(out, '=')
				continue
			}
			out = append(out, c)
			i += 2
		}
	}
	return out
}

// softBreak returns the length of blanks and the end of the line, or 0.
func softBreak(s []byte) int {
	for i, c := range s {
		switch {
		case c == '\n' && i > 0:
			return i + 1
		case c != ' ' && c != '\t' && c != '\r':
			return 0
		}
	}
	return 0
}

func hexByte(s []byte) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	const digits = "0123456789abcdef"
	hi := strings.IndexByte(digits, s[0]|0x20)
	lo := strings.IndexByte(digits, s[1]|0x20)
	if hi < 0 || lo < 0 || s[0] < '0' || s[1] < '0' { // |0x20 maps other bytes to digits
		return 0, false
	}
	return byte(hi<<4 | lo), true
}

// unflow joins the lines of format=flowed text (RFC 3676), as git mailinfo does:
// a line that ends in a space goes on in the next one, and one leading space,
// which protected the line, is removed.
func unflow(text []byte, delSp bool) []byte {
	var out, open []byte
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if string(line) == "-- " { // the mark of a signature
			if len(open) > 0 {
				out = append(append(out, open...), '\n')
			}
			out, open = append(out, "-- \n"...), nil
			continue
		}
		line = bytes.TrimPrefix(line, []byte(" "))
		if n := len(line); n > 0 && line[n-1] == ' ' {
			if delSp {
				n--
			}
			open = append(open, line[:n]...)
			continue
		}
		out = append(append(append(out, open...), line...), '\n')
		open = open[:0]
	}
	return append(out, open...)
}

// endInLF makes CRLF to LF if the lines of a mail's or a diff's own frame end in
// it. It does nothing to a patch of a file that has CRLF itself.
func endInLF(data []byte) (out []byte, changed bool) {
	if !crlfHeader.Match(data) {
		return data, false
	}
	return bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), true
}

// decodeHeader makes a header field UTF-8: RFC 2047, and the bytes that mailers
// put there although they must not.
func decodeHeader(s string) string {
	if text, err := wordDecoder().DecodeHeader(s); err == nil {
		s = text
	}
	s, _ = toUTF8("", []byte(s))
	return s
}

// toUTF8 decodes text. Without a charset it is UTF-8 if it can be and else
// ISO-8859-1, as git guesses. ok is false if the charset is not known; what is
// not ASCII then is "?".
func toUTF8(charset string, data []byte) (text string, ok bool) {
	if isUTF8Charset(charset) && utf8.Valid(data) {
		return string(data), true
	}
	var high func(c byte) rune
	switch strings.ToLower(charset) {
	case "", "us-ascii", "ascii", "iso-8859-1", "iso8859-1", "latin1":
		high = func(c byte) rune { return rune(c) }
	case "iso-8859-15", "iso8859-15":
		high = func(c byte) rune { return pick(latin9, c, 0xa4) }
	case "windows-1252", "cp1252":
		high = func(c byte) rune { return pick(cp1252, c, 0x80) }
	case "utf-8", "utf8":
		return strings.ToValidUTF8(string(data), "?"), true
	default:
		high = func(byte) rune { return '?' }
	}
	var b strings.Builder
	b.Grow(len(data))
	known := true
	for _, c := range data {
		r := rune(c)
		if c >= utf8.RuneSelf {
			r = high(c)
			known = known && r != '?'
		}
		b.WriteRune(r)
	}
	return b.String(), known
}

// The characters in which two charsets of the west differ from ISO-8859-1,
// from 0xa4 and from 0x80 on.
var (
	latin9 = []rune("€¥Š§š©ª«¬\u00ad®¯°±²³Žµ¶·ž¹º»ŒœŸ")
	cp1252 = []rune("€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ")
)

func pick(table []rune, c byte, from int) rune {
	if i := int(c) - from; i >= 0 && i < len(table) {
		return table[i]
	}
	return rune(c)
}

func isUTF8Charset(charset string) bool {
	switch strings.ToLower(charset) {
	case "", "us-ascii", "ascii", "utf-8", "utf8":
		return true
	}
	return false
}

func hasHighBytes(data []byte) bool {
	return bytes.IndexFunc(data, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0
}

// wordDecoder decodes the words of RFC 2047 in the charsets that toUTF8 knows.
func wordDecoder() *mime.WordDecoder {
	return &mime.WordDecoder{CharsetReader: func(charset string, r io.Reader) (io.Reader, error) {
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		text, _ := toUTF8(charset, data)
		return strings.NewReader(text), nil
	}}
}

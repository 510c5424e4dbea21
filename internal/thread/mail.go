package thread

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/kbisect/kbisect/internal/series"
)

// mboxrd is how a mailbox that public-inbox made begins. There, and in no other
// place where it would be safe to say so, ">From " has been quoted.
var mboxrd = []byte("From mboxrd@z ")

// isMailbox reports whether data is an mbox or a mail as it was sent. What begins
// with a few fields of a header only is an archive's page.
func isMailbox(data []byte) bool {
	data = bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\ufeff")), " \t\r\n")
	if !series.IsMail(data) {
		return false
	}
	if bytes.HasPrefix(data, []byte("From ")) {
		return true
	}
	for l := range bytes.Lines(data) {
		if len(bytes.TrimSpace(l)) == 0 {
			return false
		}
		// Pages show a Message-ID too, with "(raw)" behind it as a link.
		name, value, ok := bytes.Cut(l, []byte(":"))
		if ok && transport[strings.ToLower(string(name))] && !bytes.Contains(value, []byte("(raw)")) {
			return true
		}
	}
	return false
}

// transport are fields of a mail that no archive prints.
var transport = map[string]bool{
	"message-id": true, "mime-version": true, "received": true, "return-path": true,
	"content-type": true, "content-transfer-encoding": true, "delivered-to": true,
	"x-mailer": true, "user-agent": true, "references": true, "in-reply-to": true,
}

// mailbox reads the mails of data. A mail that cannot be read is a warning: it
// may be of no interest.
func (t *Thread) mailbox(name string, data []byte) ([]*message, error) {
	start := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\ufeff")), " \t\r\n")
	if t.Form == "" {
		t.Form = FormMail
		if bytes.HasPrefix(start, []byte("From ")) {
			t.Form = FormMbox
		}
	}
	mails, unread, err := series.EachMail(name, data, series.MailOptions{MboxRD: bytes.HasPrefix(start, mboxrd)})
	if err != nil {
		return nil, err
	}
	for _, err := range unread {
		t.warn("a mail is left out: %v", err)
	}
	if len(mails) == 0 {
		return nil, fmt.Errorf("none of its mails can be read: %w", unread[0])
	}
	var list []*message
	for _, m := range mails {
		msg := fromMail(m, MaxLines-t.lines)
		if t.lines += len(msg.lines); t.lines >= MaxLines && !t.full {
			t.full = true
			t.warn("only its first %d lines are read", MaxLines)
		}
		list = append(list, msg)
	}
	return list, nil
}

// fromMail takes at most limit lines of a mail.
func fromMail(m series.Mail, limit int) *message {
	id := func(name string) string {
		s := m.Header(name)
		if from := strings.IndexByte(s, '<'); from >= 0 {
			s = s[from+1:]
		}
		s, _, _ = strings.Cut(s, ">")
		return strings.TrimSpace(s)
	}
	msg := &message{mail: &m, Message: Message{
		Line: m.Line, Author: m.Header("From"), Date: m.Header("Date"), Subject: m.Subject(),
		ID: id("Message-Id"), InReplyTo: id("In-Reply-To"),
	}}
	for _, l := range m.Lines(limit) {
		at := l.Line
		if at == 0 {
			at = m.Line
		}
		msg.lines = append(msg.lines, line{text: strings.TrimSuffix(l.Text, "\r"), raw: l.Raw, n: at})
	}
	return msg
}

// readMaildir reads each file of a maildir as one mail.
func readMaildir(dir string) (*Thread, error) {
	t := &Thread{Name: dir, Form: FormMaildir}
	names, ok, err := series.MaildirFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("read thread %q: %w", dir, err)
	}
	if !ok || len(names) == 0 {
		return nil, fmt.Errorf("read thread %q: it is a folder, and no maildir with mails in cur or new: give a file of it", dir)
	}
	if len(names) > series.MaxSeries {
		return nil, fmt.Errorf("read thread %q: it holds %d mails, and at most %d are read: give the thread alone", dir, len(names), series.MaxSeries)
	}
	var list []*message
	total := 0
	for _, name := range names {
		data, err := readFile(name)
		if err != nil {
			return nil, err
		}
		if total += len(data); total > series.MaxMailbox {
			return nil, fmt.Errorf("read thread %q: larger than %d MiB: give the thread alone", dir, series.MaxMailbox>>20)
		}
		if err := checkText(data); err != nil {
			t.warn("%q is left out: %v", name, err)
			continue
		}
		mails, err := t.mailbox(name, data)
		if err != nil {
			t.warn("%q is left out: %v", name, err)
			continue
		}
		list = append(list, mails...)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("read thread %q: none of its %d mails can be read", dir, len(names))
	}
	if err := t.fill(list); err != nil {
		return nil, fmt.Errorf("read thread %q: %w", dir, err)
	}
	return t, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read thread: %w", err)
	}
	defer f.Close()
	data, err := series.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read thread %q: %w", name, err)
	}
	return data, nil
}

package pagedinfer

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
)

type options = map[string]string

func open(t *testing.T, variable string) *Engine {
	path := os.Getenv(variable)
	if path == "" {
		t.Skip(variable + " is not set")
	}
	e, err := Open(options{"model": path, "ctx-size": "1024", "temp": "0", "threads": "2"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func text(t *testing.T, r *Request, err error) string {
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Text()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func code(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func TestErrors(t *testing.T) {
	_, err := Open(options{"no-such-key": "1"})
	if code(err) != EInval || !strings.Contains(err.Error(), "no-such-key") || err.(*Error).Name() != "PI_EINVAL" {
		t.Fatal(err)
	}
	if _, err := Open(options{"model": "/none.gguf"}); code(err) != ENoEnt {
		t.Fatal(err)
	}
}

func TestRequests(t *testing.T) {
	e := open(t, "PAGEDINFER_MODEL")
	prompts := []string{"Once upon a time", "The capital of France is", "1, 2, 3, 4,"}
	alone := make([]string, len(prompts))
	together := make([]string, len(prompts))
	for i, p := range prompts {
		r, err := e.Prompt(p, options{"max-tokens": "12"})
		alone[i] = text(t, r, err)
	}
	var group sync.WaitGroup
	for i, p := range prompts {
		group.Add(1)
		go func(i int, p string) {
			defer group.Done()
			if r, err := e.Prompt(p, options{"max-tokens": "12"}); err == nil {
				together[i], _ = r.Text()
			}
		}(i, p)
	}
	group.Wait()
	for i := range prompts {
		if alone[i] == "" || alone[i] != together[i] {
			t.Errorf("%q: %q, together %q", prompts[i], alone[i], together[i])
		}
	}
	if _, err := e.Prompt(strings.Repeat("x ", 5000), nil); code(err) != ETooBig {
		t.Error(err)
	}
	if _, err := e.Prompt("a", options{"temp": "hot"}); code(err) != EInval {
		t.Error(err)
	}
}

func TestEnds(t *testing.T) {
	e := open(t, "PAGEDINFER_MODEL")
	endless := func() *Request {
		r, err := e.Prompt("Tell", options{"ignore-eos": "true"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := endless()
	<-r.Pieces()
	r.Cancel()
	last := Piece{}
	for p := range r.Pieces() {
		last = p
	}
	if err := r.Close(); last.Finish != FinishCancel || code(err) != ECanceled {
		t.Error(last, err)
	}
	endless().Close() // while it runs
	r, err := e.Prompt("a", options{"n": "2", "max-tokens": "3"})
	if err != nil {
		t.Fatal(err)
	}
	tokens, ends := 0, 0
	for p := range r.Pieces() {
		tokens += len(p.Tokens)
		if p.Finish != 0 {
			ends++
		}
	}
	if err := r.Close(); err != nil || ends != 2 || tokens == 0 || tokens > 6 {
		t.Error(err, ends, tokens)
	}
}

func TestChat(t *testing.T) {
	e := open(t, "PAGEDINFER_CHAT_MODEL")
	r, err := e.Chat(`[{"role": "user", "content": "Name a colour."}]`, options{"max-tokens": "8"})
	if text(t, r, err) == "" {
		t.Error("no text")
	}
	if _, err := e.Chat("{", nil); code(err) != EInval {
		t.Error(err)
	}
}

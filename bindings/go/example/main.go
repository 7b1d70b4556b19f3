// example: prompts that share an engine. Their texts are printed in order.
//
//	example MODEL PROMPT...
package main

import (
	"fmt"
	"os"

	"pagedinfer"
)

func run(model string, prompts []string) error {
	engine, err := pagedinfer.Open(map[string]string{"model": model, "temp": "0", "max-tokens": "48"})
	if err != nil {
		return err
	}
	defer engine.Close()
	var requests []*pagedinfer.Request
	for _, prompt := range prompts { // all run at the same time
		request, err := engine.Prompt(prompt, nil)
		if err != nil {
			closeAll(requests)
			return err
		}
		requests = append(requests, request)
	}
	for i, request := range requests {
		text, err := request.Text()
		if err != nil {
			closeAll(requests[i+1:])
			return err
		}
		fmt.Println(text)
	}
	return nil
}

func closeAll(requests []*pagedinfer.Request) {
	for _, r := range requests {
		r.Close()
	}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: example MODEL PROMPT...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

// A Go client (go-redis) through valkey-rdma-proxy. Go programs make their system calls themselves, so no preloaded
// library can give them RDMA.
//
//	go mod init example && go get github.com/redis/go-redis/v9 && go run . SOCKET
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"sync"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Args[1], PoolSize: 20})
	defer client.Close()
	var group sync.WaitGroup
	for worker := 0; worker < 20; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 50; i++ {
				if err := client.Incr(ctx, "example:go").Err(); err != nil {
					log.Fatal(err)
				}
			}
		}()
	}
	group.Wait()
	count, err := client.Get(ctx, "example:go").Result()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("count", count)
	info, err := client.Do(ctx, "CLIENT", "INFO").Text()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("transport", regexp.MustCompile(`transport=(\w+)`).FindStringSubmatch(info)[1])
	client.Del(ctx, "example:go")
}

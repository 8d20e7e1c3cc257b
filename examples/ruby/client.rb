# A Ruby client (the gem redis) through valkey-rdma-proxy.
#
#     ruby client.rb SOCKET
require 'redis'

client = Redis.new(path: ARGV[0])
client.set('example:ruby', 'hello')
puts client.get('example:ruby')
client.pipelined { |pipeline| 1000.times { |number| pipeline.incrby('example:sum', number) } }
puts client.get('example:sum')
puts "transport #{client.call('CLIENT', 'INFO')[/transport=(\w+)/, 1]}"
client.del('example:ruby', 'example:sum')

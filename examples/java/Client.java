// A Java program through valkey-rdma-proxy, over its Unix socket. It needs nothing but a JDK of version 16 or later;
// clients such as Jedis and Lettuce connect to a loopback port of the proxy in the same way as to a server.
//
//     java Client.java SOCKET
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;

public class Client {
    public static void main(String[] args) throws IOException {
        try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            channel.connect(UnixDomainSocketAddress.of(args[0]));
            BufferedReader replies = new BufferedReader(
                new InputStreamReader(Channels.newInputStream(channel), StandardCharsets.UTF_8));
            System.out.println(call(channel, replies, "SET example:java hello"));
            System.out.println(call(channel, replies, "GET example:java"));
            call(channel, replies, "DEL example:java");
            String info = call(channel, replies, "CLIENT INFO");
            System.out.println("transport " + info.replaceAll("(?s).*transport=(\\w+).*", "$1"));
        }
    }

    private static String call(SocketChannel channel, BufferedReader replies, String request) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap((request + "\r\n").getBytes(StandardCharsets.UTF_8));
        while (bytes.hasRemaining()) channel.write(bytes);
        String line = replies.readLine();
        if (!line.startsWith("$")) return line;
        char[] text = new char[Integer.parseInt(line.substring(1)) + 2];
        for (int at = 0; at < text.length;) at += replies.read(text, at, text.length - at);
        return new String(text, 0, text.length - 2);
    }
}

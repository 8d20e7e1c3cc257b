// A Rust program through valkey-rdma-proxy, over its Unix socket, or under valkey-rdma-run, over what it takes for TCP.
// It needs nothing but rustc. Rust's standard library and tokio use the sockets of the C library, so programs with a
// client crate run in the same way.
//
//     rustc -O client.rs && ./client SOCKET
//     valkey-rdma-run --map HOST:PORT ./client HOST:PORT
use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

/// The reply to one command: a line, or the text of a bulk string.
fn call<S: Read + Write>(server: &mut BufReader<S>, arguments: &[&str]) -> io::Result<String> {
    let mut request = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        request += &format!("${}\r\n{}\r\n", argument.len(), argument);
    }
    server.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    if server.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    if line.starts_with('-') {
        return Err(bad(line));
    }
    if !line.starts_with('$') {
        return Ok(line[1..].to_string());
    }
    let len: usize = line[1..].parse().map_err(|_| bad("no value"))?;
    let mut text = vec![0; len + 2];
    server.read_exact(&mut text)?;
    text.truncate(len);
    String::from_utf8(text).map_err(|_| bad("no text"))
}

fn run<S: Read + Write>(stream: S) -> io::Result<()> {
    let mut server = BufReader::new(stream);
    let large = "x".repeat(1_000_000);
    println!("{}", call(&mut server, &["SET", "example:rust", "hello"])?);
    println!("{}", call(&mut server, &["GET", "example:rust"])?);
    call(&mut server, &["SET", "example:rust", &large])?;
    if call(&mut server, &["GET", "example:rust"])? != large {
        return Err(bad("the large value has changed"));
    }
    call(&mut server, &["DEL", "example:rust"])?;
    let info = call(&mut server, &["CLIENT", "INFO"])?;
    let transport = info.split_whitespace().find_map(|field| field.strip_prefix("transport="));
    println!("transport {}", transport.unwrap_or("tcp"));
    Ok(())
}

fn main() -> io::Result<()> {
    let address = env::args().nth(1).ok_or_else(|| bad("usage: client SOCKET|HOST:PORT"))?;
    if address.starts_with('/') {
        run(UnixStream::connect(address)?)
    } else {
        run(TcpStream::connect(address)?)
    }
}

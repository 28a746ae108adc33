import { isIPv4 } from 'node:net'
import ipaddr from 'ipaddr.js'

/**
 * What of an address stands for one client: IPv4 whole, also where it is written as IPv6 (`::ffff:192.0.2.1`); of IPv6
 * the network of 64 bits, within which anybody takes any address. A port that a proxy has appended is dropped. Any other
 * text stands for itself.
 */
export function clientNetwork(address: string): string {
  if (isIPv4(address)) return address
  const bare = address.replace(/^\[(.+)\](:\d+)?$/, '$1').replace(/^(\d+(?:\.\d+){3}):\d+$/, '$1')
  if (!ipaddr.isValid(bare)) return address
  const parsed = ipaddr.process(bare)
  return 'parts' in parsed ? `${parsed.parts.slice(0, 4).map(hexadecimal).join(':')}::/64` : parsed.toString()
}

/** Whether an address, in brackets or not, is this machine's own; a name is none. */
export function isLoopback(address: string): boolean {
  const bare = address.replace(/^\[(.+)\]$/, '$1')
  return ipaddr.isValid(bare) && ipaddr.process(bare).range() === 'loopback'
}

function hexadecimal(part: number): string {
  return part.toString(16)
}

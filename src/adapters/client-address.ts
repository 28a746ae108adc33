import { isIPv4 } from 'node:net'
import ipaddr from 'ipaddr.js'

/**
 * The part of an address that identifies one client: IPv4 whole, also if it is written as IPv6 (`::ffff:192.0.2.1`); of
 * IPv6 the network of 64 bits, within which a client may take any address. A port that a proxy has appended is dropped.
 * Any other text stands for itself.
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

/**
 * The address of the client behind the proxies that TRUST_PROXY names: the last one in the way that is none of them.
 * For connections that do not go through the framework, in its own terms.
 */
export function forwardedAddress(
  peer: string,
  header: string | string[] | undefined,
  trusted: false | number | string,
): string {
  const way = [
    peer,
    ...String(header ?? '')
      .split(',')
      .map((part) => part.trim())
      .filter(Boolean)
      .reverse(),
  ]
  const isTrusted = trustOf(trusted)
  const last = way.findIndex((address, i) => !isTrusted(address, i))
  return way.at(last)!
}

type Trust = (address: string, hop: number) => boolean

function trustOf(trusted: false | number | string): Trust {
  if (trusted === false) return () => false
  if (typeof trusted === 'number') return (_address, hop) => hop < trusted
  const networks = trusted.split(',').map((network) => network.trim())
  return (address) => ipaddr.isValid(address) && networks.some((network) => isWithin(ipaddr.process(address), network))
}

function isWithin(address: ipaddr.IPv4 | ipaddr.IPv6, network: string): boolean {
  const ranges: Readonly<Record<string, readonly string[]>> = {
    loopback: ['loopback'],
    linklocal: ['linkLocal'],
    uniquelocal: ['private', 'uniqueLocal'],
  }
  if (network in ranges) return ranges[network]!.includes(address.range())
  const range = network.includes('/') ? ipaddr.parseCIDR(network) : wholeAddress(network)
  return address.kind() === range[0].kind() && address.match(range as [ipaddr.IPv4, number])
}

function wholeAddress(text: string): [ipaddr.IPv4 | ipaddr.IPv6, number] {
  const address = ipaddr.process(text)
  return [address, address.kind() === 'ipv4' ? 32 : 128]
}

import { type LookupAddress, lookup } from 'node:dns'
import { BlockList, isIP, isIPv4, type LookupFunction } from 'node:net'
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

/** A host that a caller or a third party has named leads where the server may not go. */
export class ForbiddenAddressError extends Error {
  override readonly name = 'ForbiddenAddressError'

  constructor() {
    super('The address leads to a network that is not allowed')
  }
}

/** Whether an IP address is one of the public internet. */
export function isPublicAddress(address: string): boolean {
  const family = isIP(address)
  if (family === 4) return !reserved.check(address, 'ipv4')
  return family === 6 && globalUnicast.check(address, 'ipv6') && !reserved.check(address, 'ipv6')
}

/** Whether a host as it is written is an IP address, in brackets or not, outside the public internet. */
export function isForbiddenLiteral(host: string): boolean {
  const literal = host.replace(/^\[|\]$/g, '')
  return isIP(literal) !== 0 && !isPublicAddress(literal)
}

/**
 * Resolves a name for the very connection that is being opened, so that no second answer of its DNS server can lead
 * elsewhere. One forbidden address among several makes the name forbidden: which one is connected to is not ours to say.
 *
 * A literal address is connected to without being looked up: ask `isForbiddenLiteral` before.
 */
export const lookUpPublic: LookupFunction = (hostname, options, done) => {
  lookup(hostname, { ...options, all: true }, (error, addresses: LookupAddress[]) => {
    if (error !== null) return done(error, [])
    if (addresses.length === 0 || !addresses.every(({ address }) => isPublicAddress(address)))
      return done(new ForbiddenAddressError(), [])
    if (options.all === true) return done(null, addresses)
    const [{ address, family }] = addresses as [LookupAddress]
    done(null, address, family)
  })
}

/** Networks that the IANA registers of special-purpose addresses keep out of the public internet, and one metadata service. */
const reservedNetworks = [
  ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12', '192.0.0.0/24'],
  ...['192.0.2.0/24', '192.31.196.0/24', '192.52.193.0/24', '192.88.99.0/24', '192.168.0.0/16', '192.175.48.0/24'],
  ...['198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4', '168.63.129.16/32'],
  // Within the global unicast block: protocol assignments with Teredo, documentation, 6to4.
  ...['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20', '2620:4f:8000::/48'],
]

const reserved = blockListOf(reservedNetworks)
/** Mapped, translated, local and multicast addresses are outside of it. */
const globalUnicast = blockListOf(['2000::/3'])

function blockListOf(networks: readonly string[]): BlockList {
  const list = new BlockList()
  for (const network of networks) {
    const [address = '', prefix] = network.split('/')
    list.addSubnet(address, Number(prefix), isIP(address) === 6 ? 'ipv6' : 'ipv4')
  }
  return list
}

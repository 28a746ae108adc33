import { describe, expect, it } from 'vitest'
import { clientNetwork, forwardedAddress } from '../../src/adapters/network-addresses.ts'

describe('one client', () => {
  it.each([
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::FFFF:c000:0201', '192.0.2.1'],
    ['192.0.2.1:50000', '192.0.2.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:0001:0002::1', '2001:db8:1:2::/64'],
    ['[2001:db8:1:2::1]:443', '2001:db8:1:2::/64'],
    ['2001:db8:1:3::1', '2001:db8:1:3::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['unknown', 'unknown'],
    ['', ''],
  ])('%s is %s', (address, network) => expect(clientNetwork(address)).toBe(network))
})

describe('the client behind trusted proxies', () => {
  it.each([
    ['10.0.0.1', '192.0.2.1', false, '10.0.0.1'],
    ['10.0.0.1', undefined, 1, '10.0.0.1'],
    ['10.0.0.1', '192.0.2.9, 192.0.2.1', 1, '192.0.2.1'],
    ['10.0.0.1', '192.0.2.9, 192.0.2.1', 2, '192.0.2.9'],
    ['10.0.0.1', '192.0.2.9, 192.0.2.1', 5, '192.0.2.9'],
    ['::ffff:127.0.0.1', '192.0.2.1', 'loopback', '192.0.2.1'],
    ['10.1.2.3', '192.0.2.9, 192.0.2.1, 10.9.9.9', '10.0.0.0/8', '192.0.2.1'],
    ['10.1.2.3', '192.0.2.1', 'uniquelocal,loopback', '192.0.2.1'],
    ['192.0.2.7', '192.0.2.1', '10.0.0.0/8, 192.0.2.8', '192.0.2.7'],
    ['192.0.2.8', 'spoofed, 192.0.2.1', '192.0.2.8', '192.0.2.1'],
    ['10.0.0.1', 'nonsense', '10.0.0.0/8', 'nonsense'],
    ['2001:db8::1', '192.0.2.1', '2001:db8::/32', '192.0.2.1'],
    ['2001:db8::1', '192.0.2.1', '10.0.0.0/8', '2001:db8::1'],
  ] as [string, string | undefined, false | number | string, string][])(
    'of %s forwarded for %s, trusting %s, is %s',
    (peer, header, trusted, client) => expect(forwardedAddress(peer, header, trusted)).toBe(client),
  )
})

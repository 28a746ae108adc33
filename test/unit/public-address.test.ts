import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { isForbiddenLiteral, isLoopback, isPublicAddress, lookUpPublic } from '../../src/adapters/network-addresses.ts'

it.each([
  ...['0.0.0.0', '10.0.0.1', '100.64.0.1', '127.0.0.1', '127.255.255.254', '169.254.169.254', '172.31.255.255'],
  ...['192.168.1.1', '198.18.0.1', '224.0.0.1', '255.255.255.255', '168.63.129.16', '203.0.113.7'],
  ...['100.100.100.200', '192.0.0.192', '172.16.0.1', '10.1.2.3', 'not an address', '::ffff:127.0.0.1'],
  ...['::', '::1', '::ffff:8.8.8.8', '::ffff:7f00:1', '64:ff9b::7f00:1', 'fe80::1', 'fc00::1', 'fd00:ec2::254'],
  ...['ff02::1', '2001:db8::1', '2002:7f00:1::', '2001::1'],
  ...['', 'localhost', '127.1', '0x7f000001', '2130706433', '8.8.8.8:25'],
])('%j is no address of the public internet', (address) => {
  expect(isPublicAddress(address)).toBe(false)
})

it.each([
  '8.8.8.8',
  '172.32.0.1',
  '100.63.255.255',
  '100.128.0.1',
  '192.1.0.1',
  '2606:4700::1111',
  '2a00:1450:4001::1',
])('%s is one', (address) => {
  expect(isPublicAddress(address)).toBe(true)
  expect(isForbiddenLiteral(address)).toBe(false)
})

it('a literal may be in brackets, and a name is none', () => {
  expect(isForbiddenLiteral('[::1]')).toBe(true)
  expect(isForbiddenLiteral('localhost')).toBe(false)
})

it.each([true, false])('a name that leads to this machine is not resolved (all: %s)', async (all) => {
  const resolved = promisify(lookUpPublic as never)('localhost', { all } as never)
  await expect(resolved).rejects.toMatchObject({ name: 'ForbiddenAddressError' })
})

it.each([
  ['127.0.0.1', true],
  ['127.9.9.9', true],
  ['::1', true],
  ['[::1]', true],
  ['::ffff:127.0.0.1', true],
  ['10.0.0.1', false],
  ['localhost', false],
  ['', false],
])('%j is of this machine: %s', (address, expected) => {
  expect(isLoopback(address)).toBe(expected)
})

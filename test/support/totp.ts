import { createHmac } from 'node:crypto'

/** The code that an authenticator app shows for a base32 secret, `offset` steps of 30 s from now (RFC 6238, SHA-1). */
export function appCode(secret: string, offset = 0): string {
  const counter = Buffer.alloc(8)
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + offset))
  const digest = createHmac('sha1', fromBase32(secret)).update(counter).digest()
  const number = digest.readUInt32BE(digest.at(-1)! & 0xf) & 0x7fff_ffff
  return String(number % 1_000_000).padStart(6, '0')
}

/** A code that no step near now has. */
export function wrongAppCode(secret: string): string {
  const near = new Set([-2, -1, 0, 1, 2].map((offset) => appCode(secret, offset)))
  return ['000000', '111111', '222222', '333333', '444444', '555555'].find((code) => !near.has(code))!
}

function fromBase32(text: string): Buffer {
  const bits = [...text].map((c) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(c).toString(2).padStart(5, '0')).join('')
  return Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)))
}

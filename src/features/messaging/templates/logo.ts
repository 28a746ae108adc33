import { lstatSync, readFileSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import type { InlineImage } from '../../../adapters/mailer.ts'
import { ConfigError } from '../../../config/config.ts'
import { type AssetWrites, contentsOf, settingsAsset, wholeOf } from '../../files/assets/assets.ts'

/** A PNG that mails show where the settings name no icon. */
export type MailLogo = { readonly mailLogo: Buffer }

/** The value of `logo_url`: the image that comes with the mail. */
export const logoAddress = 'cid:logo'

/** Bytes; it is part of every mail. */
const largest = 256 * 1024
const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])

/**
 * The PNG at `templates/logo/logo.png` of the extensions, else the default logo. It goes to
 * strangers, so nothing may lead elsewhere: a link is refused.
 *
 * @throws {ConfigError} for a link, for what is no PNG and for what is too large
 */
export function readLogo(extensionsDir: string): Buffer {
  const path = join('templates', 'logo', 'logo.png')
  const file = join(extensionsDir, path)
  const found = lstatSync(file, { throwIfNoEntry: false })
  if (found === undefined) return readFileSync(new URL('./logo.png', import.meta.url))
  const isItself = found.isFile() && realpathSync(file) === join(realpathSync(extensionsDir), path)
  if (!isItself) throw new ConfigError(`EXTENSIONS_DIR: ${file} is a link or no file`)
  if (found.size > largest) throw new ConfigError(`EXTENSIONS_DIR: ${file} is larger than ${largest} bytes`)
  const image = readFileSync(file)
  if (!image.subarray(0, signature.length).equals(signature))
    throw new ConfigError(`EXTENSIONS_DIR: ${file} is not a PNG`)
  return image
}

/** The capabilities to find the logo of a mail. */
export type LogoReads = MailLogo & AssetWrites

/** The images that must go with the HTML so that its logo shows. */
export async function inlineImages(
  deps: LogoReads,
  html: string,
  tenantId: string | undefined,
): Promise<readonly InlineImage[]> {
  return html.includes(logoAddress) ? [{ cid: 'logo', ...(await logoOf(deps, tenantId)) }] : []
}

/** The same HTML for a browser, which knows no parts of mails. */
export async function withEmbeddedLogo(deps: LogoReads, html: string, tenantId: string | undefined): Promise<string> {
  if (!html.includes(logoAddress)) return html
  const { contentType, content } = await logoOf(deps, tenantId)
  return html.replaceAll(logoAddress, `data:${contentType};base64,${content.toString('base64')}`)
}

type Logo = Omit<InlineImage, 'cid'>

/** A mail is worth more than its logo: where the settings' icon cannot be had, it is the PNG. */
async function logoOf(deps: LogoReads, tenantId: string | undefined): Promise<Logo> {
  const icon = await iconOf(deps, tenantId).catch((error: unknown) => {
    deps.log.warn({ err: error, tenantId }, 'a mail has the default logo: the icon of the settings could not be read')
    return undefined
  })
  return icon ?? { contentType: 'image/png', content: deps.mailLogo }
}

/** Types that every mail program shows. */
const usualTypes = new Set(['image/png', 'image/jpeg', 'image/gif'])
/** Twice the size in which a mail shows it, for fine screens. */
const smaller = { width: 480, height: 240, fit: 'inside', withoutEnlargement: true, format: 'png' } as const

/** The file that the settings name as `email_icon_Id`, made smaller where it is large or of another format. */
async function iconOf(deps: LogoReads, tenantId: string | undefined): Promise<Logo | undefined> {
  const icon = await settingsAsset(deps, 'email_icon', tenantId)
  if (icon === undefined) return undefined
  const contents = contentsOf(deps)
  const isFit = icon.typeProven && usualTypes.has(icon.type) && icon.size <= largest
  const content = await wholeOf(
    isFit ? contents.original(icon) : await contents.variant(icon, smaller, { turn: 'mail', gone: undefined }),
  )
  if (content === undefined) throw new Error('its content is gone')
  return { contentType: isFit ? icon.type : 'image/png', content }
}

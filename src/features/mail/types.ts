import type { TemplateType } from '../templates/templates.ts'

/** What each type of mail needs to know. Kept in svc_EmailLog and shown to administrators: never a secret. */
export type MailContext = {
  /** `link`: the frontend's address that the verification link begins with. */
  verification: { readonly link: string }
}

export type MailType = keyof MailContext

/** What a one-time secret is good for; the first part of its identifier in svc_Verification (auth facts §3). */
export type SecretPurpose = 'email-verification'

/** A secret that is made when the mail is sent and works once, for `lifetimeSeconds` from then. */
export type MailSecret = { readonly purpose: SecretPurpose; readonly lifetimeSeconds: number }

type MailTypeEntry<Type extends MailType> = {
  readonly template: TemplateType
  readonly secret: MailSecret | undefined
  /** The template's variables beyond the common ones. */
  variables(context: MailContext[Type], secret: string): Readonly<Record<string, string>>
}

const day = 86_400

/** Every type of mail. A new one is an entry here, a context above and a built-in template. */
export const mailTypes: { readonly [Type in MailType]: MailTypeEntry<Type> } = {
  verification: {
    template: 'verification',
    secret: { purpose: 'email-verification', lifetimeSeconds: day },
    variables: ({ link }, token) => {
      const verificationLink = `${link.replace(/\/+$/, '')}/auth/verify-email/${token}`
      return { verificationLink, verifyUrl: verificationLink }
    },
  },
}

/** The types whose secrets replace each other: a newer mail of one makes an older one worthless. */
export function typesOfPurpose(purpose: SecretPurpose): readonly MailType[] {
  return (Object.keys(mailTypes) as MailType[]).filter((type) => mailTypes[type].secret?.purpose === purpose)
}

/** Where the hash of a secret is found: one live row per purpose and address. */
export function secretIdentifier(purpose: SecretPurpose, email: string): string {
  return `${purpose}:${email}`
}

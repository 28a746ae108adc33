import { Type } from 'typebox'
import { Filled, Text } from '../../../http/shapes.ts'
import { SignIn } from '../auth/auth.ts'

/** What the endpoints take and answer. */

const bothNeeded = 'twoFactorToken and code are required'
export const VerifyBody = Type.Object({
  twoFactorToken: Filled('0f3a5d1f0c2b7e44', { refusal: bothNeeded }),
  code: Filled('123456', { refusal: bothNeeded, description: 'Of the app, or one of the backup codes.' }),
  authMode: SignIn.authMode,
})

export const CodeBody = Type.Object({ code: Filled('123456', { refusal: 'code is required' }) })

export const PasswordBody = Type.Object({
  password: Type.String({ minLength: 1, examples: ['correct horse battery'], refusal: 'Password is required' }),
})

export const SetupShape = Type.Object({
  secret: Text('JBSWY3DPEHPK3PXP'),
  otpauthUrl: Text('otpauth://totp/Acme:ada@example.com?secret=JBSWY3DPEHPK3PXP&issuer=Acme'),
  backupCodes: Type.Array(Text('7k2m-9q4x')),
})

export const EnabledShape = Type.Object({ enabled: Type.Literal(true) })

export const DisabledShape = Type.Object({ disabled: Type.Literal(true) })

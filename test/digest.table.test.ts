import { describe, expect, it } from 'vitest';
import { digestOf } from '../src/basics/digest.ts';
import { exactJson } from '../src/wire/exact-json.ts';
import { parseJson } from '../src/wire/json-text.ts';

/**
 * Stores keep these digests. One that changes gives a retry another idempotency key, so a payment
 * is made twice: add rows, and never change one.
 */
const OF_NUMBERS: readonly (readonly [literal: string, digest: string])[] = [
  ['0', '8wE_kzufuAq22ZXnrZ2jb2g4N7odgelQyUPUARHqwvA'],
  ['-0', '8wE_kzufuAq22ZXnrZ2jb2g4N7odgelQyUPUARHqwvA'],
  ['0.0', '8wE_kzufuAq22ZXnrZ2jb2g4N7odgelQyUPUARHqwvA'],
  ['0e400', '8wE_kzufuAq22ZXnrZ2jb2g4N7odgelQyUPUARHqwvA'],
  ['1', 'K_0U9D0X_HzqJOCReoh5tLL4gLi67sG52Q-6rWVecb0'],
  ['1.0', 'K_0U9D0X_HzqJOCReoh5tLL4gLi67sG52Q-6rWVecb0'],
  ['1e0', 'K_0U9D0X_HzqJOCReoh5tLL4gLi67sG52Q-6rWVecb0'],
  ['10e-1', 'K_0U9D0X_HzqJOCReoh5tLL4gLi67sG52Q-6rWVecb0'],
  ['-1', 'DDHpNBg3s4aYVujqAAzcJmjmiovQ8pHWHD1-pSu8_5Y'],
  ['42', 'Tgcw8jj4HeE3_yfYnsO8w-ut-VEHZhOH34IEPE7CVHU'],
  ['2147483648', 'krbimPHZz9Cw5Ay9xuE46dsVOoqr-DVS-klZjPhR9G8'],
  ['9007199254740991', '4dpIxqYInwbstOCiJZ5ljjeGskIPUrrM35KexkYNe0E'],
  ['9007199254740992', 'Zsh9nLMBTgWhG6qX32IoLYnUJfIu4VgWV3yEU04u8bs'],
  ['9007199254740993', '87TasLciuWTJH5LdJv253hHR5qgcd3PUhBD6bdcVRDw'],
  ['90071992547409940', 'gPdFiEe0LWX90chxGRVGO5lg3aKggngP1t6sko6qGRM'],
  ['90071992547409944', 'kxloaE98QrQSQnoq7aFWuW9PX4hnua2yX2u7V20ClfU'],
  ['0.1', 'wgw07RbIN-hrTc2zP5jCdMn32hIx9kMCCC0s1QdD-VE'],
  ['0.10', 'wgw07RbIN-hrTc2zP5jCdMn32hIx9kMCCC0s1QdD-VE'],
  ['0.10000000000000001', 'wgw07RbIN-hrTc2zP5jCdMn32hIx9kMCCC0s1QdD-VE'],
  ['0.1000000000000000000001', 'dpLC53Y5uIe9D6iHlhC7Htuob4yIB4NBlkjGsPt5iq0'],
  ['0.3', 'OZKZrn6HynLh6S-mNQaulcTDOOgBNeIGnts1lOcnFcU'],
  ['0.30000000000000004', 'HYqOFtnuYl8fte9QVBPvohLMAgsnLtD5s9PYGs9ZP94'],
  ['19.99', 'QxB1KQ3JapWqNruvAkPyOkhjGyCOZuxdLg3F2-tSTpM'],
  ['1e21', '8e4rYO6VoxcP3Aeld-XzUUztJoZ0Q9adomWsrerYEAc'],
  ['1000000000000000000000', '8e4rYO6VoxcP3Aeld-XzUUztJoZ0Q9adomWsrerYEAc'],
  ['1e22', 'miIRKKf6Q86KHSUB-QlJoWm33wNXKH79ntbxGzP4WB8'],
  ['1e23', '-KzZO01DJi6NIvOTs_wXKyYIFUZE9ovSKVI51iRR7e8'],
  ['9.9999999999999992e22', 'lyrZYQtVJ6kipKbv326Q4V_e6FqSpxoJuX00t-i_0lk'],
  ['1234567890123456789', 'A2x7lqFpcdgmLtNWNTiBWECybzOPCk2DslPjGloWyhk'],
  ['1234567890123456790', 'cPCbXbGFRRN4Q2S2D9IXjrrCWz3GTpD5PGjB4DTymdY'],
  ['1234567890123456800', 'Sr_VvScrhvapdKP1nOYwOG6yZSzOLtRWhHTrZGs5CJQ'],
  ['-1234567890123456789', 'IVDjp13IAh96mr1xI3a31kI-YBoQKeCn7D2AkSlpA9U'],
  ['1234567890123456789.0', 'A2x7lqFpcdgmLtNWNTiBWECybzOPCk2DslPjGloWyhk'],
  ['12345678901234567890e-1', 'A2x7lqFpcdgmLtNWNTiBWECybzOPCk2DslPjGloWyhk'],
  ['1.00000000000000000001', 'SWmL_z22TGrx42mB_5gXYiI5RcQHjS2yHOkVDYTmR4A'],
  ['1.7976931348623157e308', 'lZng-Wcr-l1lS0Mvpfm37gTzXGB7Oj_wHOl7Bw-PJkg'],
  ['1e308', 'WTU4ZiwTuynLUWnd7UnSWDH5G7GyGzAEAkzDbjb3YAU'],
  ['1e309', 'Is0Tz3Z3dqc78c1nq-XZjUvGRONbggxIH7Mt4rfCYP8'],
  ['1e400', 'mUUEIwVLhkaz3EwLwSOE7baJd-wVPpYYloZhj6_cWEw'],
  ['10e399', 'mUUEIwVLhkaz3EwLwSOE7baJd-wVPpYYloZhj6_cWEw'],
  ['1e401', 'zQbhRsrm2G6qvd-ChQC8jteii1jyJcAoGutBdv8Ex10'],
  ['-1e400', '-mBjYCEs0g_m_8R8orgTN8uM-4ULzB0Q-XgyOOrzu8Y'],
  ['5e-324', 'z0330oNBmNKElHEz0-x6ZvPZTo1EfKxqB4MyQhGzbUM'],
  ['4.9406564584124654e-324', 'z0330oNBmNKElHEz0-x6ZvPZTo1EfKxqB4MyQhGzbUM'],
  ['4.9e-324', '_yuzRgaJndDdbRluzDahsZTb0XfzCN7M1ptahBMrVOA'],
  ['1e-400', 'U45WTtjyr9Ekw5iaU7D_C5uc_0hlnraTg6iNs5Sg8b0'],
  ['1e-401', 'Jw6hHLhNfO62pk3AdFlKsAeJj9GivKQG-SyRmFXAGLU'],
  ['1e999999999999999999999', '01TZ0jcfBdZ50rawzuM9iiA6ljPs21dlVB7u5sX91Ms'],
];

const OF_ARGUMENTS: readonly (readonly [text: string, digest: string])[] = [
  ['{}', 'RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o'],
  ['[]', 'T1PNoYwrqgwDVLtfmj7L5e0Sq02OEbqHPC8RFhICuUU'],
  ['null', 'dCNOmK_nSY-12vHzasLXiswzlGT5UHA7jAGYkvmCuQs'],
  ['{"a":1,"b":2}', 'QyWM_3g_5wNtikMDP4MK38YOwDc4JHNUisdCuIgpJ3c'],
  ['{"b":2,"a":1}', 'QyWM_3g_5wNtikMDP4MK38YOwDc4JHNUisdCuIgpJ3c'],
  [
    '{"b":{"d":[1,2.5,true,false,null,"x"],"c":{}},"a":""}',
    '-uqVdgouRqQQt61NrdrPnxbFdueOZ4rDbWlRftRkrO8',
  ],
  ['{"text":"é € 💶 \\" \\\\ \\n \\u0000"}', 'AfclJLsq1qN9L_V6_AaU9tSlYFeF1JYON_4q5l7Ysn4'],
  ['{"order_id":"1234567890123456789"}', 'cRhocQeTCIvVABODXjWPyZdO6yCeR6-vwN64SxrI1PQ'],
  [
    '{"order_id":1234567890123456789,"lines":[{"sku":"a","n":1e400}]}',
    'GK4tucwvZv_JJy47PfnXcZ6jS6dclkurZe0tzLOYTNA',
  ],
  ['[1234567890123456789,1,1e400,2.5]', 'LbfIindj_JYXKabJ2Nf2xwq_Nw8lxtN2fU3KwDkTs3M'],
];

function digestOfText(text: string): string {
  return digestOf((exactJson(text) ?? parseJson(text)).value);
}

describe('the table of digests', () => {
  it.each(OF_NUMBERS)('has the number %s in the member "n"', (literal, digest) => {
    expect(digestOfText(`{"n":${literal}}`)).toBe(digest);
    expect(digestOfText(` { "n" : ${literal} } `)).toBe(digest);
  });

  it.each(OF_ARGUMENTS)('has the arguments %s', (text, digest) => {
    expect(digestOfText(text)).toBe(digest);
  });

  it.each([
    ['0', '-0', '0.0', '0e400'],
    ['1', '1.0', '1e0', '10e-1'],
    ['0.1', '0.10', '0.10000000000000001'],
    ['1e21', '1000000000000000000000'],
    ['1234567890123456789', '1234567890123456789.0', '12345678901234567890e-1'],
    ['1e400', '10e399'],
    ['5e-324', '4.9406564584124654e-324'],
  ])('has one digest for %s and its other forms', (...literals) => {
    const digests = new Map(OF_NUMBERS);
    expect(new Set(literals.map((each) => digests.get(each))).size).toBe(1);
  });

  it.each([
    ['1234567890123456789', '1234567890123456790', '1234567890123456800'],
    ['9007199254740992', '9007199254740993'],
    // These two share a double of 17 digits.
    ['90071992547409940', '90071992547409944'],
    ['1e309', '1e400', '1e401', '-1e400', '1e999999999999999999999'],
    ['0', '1e-400', '1e-401', '4.9e-324', '5e-324'],
    ['1', '1.00000000000000000001'],
    ['0.1', '0.1000000000000000000001'],
  ])('has another digest for each of %s and the numbers near it', (...literals) => {
    const digests = new Map(OF_NUMBERS);
    expect(new Set(literals.map((each) => digests.get(each))).size).toBe(literals.length);
  });
});
